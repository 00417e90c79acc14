"""ZIP archives of stored members, as PKWARE's APPNOTE describes them (4.3; Zip64 in 4.5.3).

`zipfile` takes ten times as long for small members.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

_VERSION, _DATE, _ELSEWHERE = 45, 1 << 5 | 1, 0xFFFFFFFF
"""Version of ZIP that has Zip64; its first date, the same for all members, so that archives are reproducible; a number
that is in the fields of Zip64."""
_MEMBER, _LISTED = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_MEMBER_64, _LISTED_64 = struct.Struct("<2H2Q"), struct.Struct("<2H3Q")
_END_64, _END_64_PLACE, _END = struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI"), struct.Struct("<4s4H2IH")


def stored_archive(members: Mapping[str, bytes]) -> bytes:
    """Return an archive of members, by name."""
    archive, listing = bytearray(), bytearray()
    for name, data in members.items():
        text, size, place = name.encode(), len(data), len(archive)
        facts = _VERSION, 0, 0, 0, _DATE, zlib.crc32(data), _ELSEWHERE, _ELSEWHERE, len(text)
        archive += _MEMBER.pack(b"PK\3\4", *facts, _MEMBER_64.size) + text
        archive += _MEMBER_64.pack(1, _MEMBER_64.size - 4, size, size) + data
        listing += _LISTED.pack(b"PK\1\2", _VERSION, *facts, _LISTED_64.size, 0, 0, 0, 0, _ELSEWHERE) + text
        listing += _LISTED_64.pack(1, _LISTED_64.size - 4, size, size, place)
    count, place, size = len(members), len(archive), len(listing)
    end = _END_64.pack(b"PK\6\6", _END_64.size - 12, _VERSION, _VERSION, 0, 0, count, count, size, place)
    end += _END_64_PLACE.pack(b"PK\6\7", 0, place + size, 1)
    end += _END.pack(b"PK\5\6", 0, 0, count, count, _ELSEWHERE, _ELSEWHERE, 0)
    return bytes(archive + listing + end)
