"""Symbol tables that can be changed and written, and the two hash tables of .dynsym.

Sources: System V ABI "Symbol Table", "Hash Table"; for DT_GNU_HASH the layout that LLVM's linker writes and llvm-
readelf reads.
"""

from __future__ import annotations

import struct

from luthier.objects.elf import SHN_UNDEF, STB_LOCAL, SYMBOL, SymbolRecord

_BLOOM_SHIFT = 26
_BLOOM_BITS_PER_SYMBOL = 12


class Strings:
    """A string table that only grows, so that offsets into it stay valid."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        if not self.data.endswith(b"\0"):
            self.data += b"\0"
        self._offsets: dict[bytes, int] = {}
        self.grown = False

    def add(self, name: str) -> int:
        """Return the offset of `name`, which is appended on first use."""
        encoded = name.encode()
        if encoded not in self._offsets:
            self._offsets[encoded] = len(self.data)
            self.data += encoded + b"\0"
            self.grown = True
        return self._offsets[encoded]

    def get(self, offset: int) -> bytes:
        """Return the name at an offset."""
        end = self.data.find(b"\0", offset)
        return bytes(self.data[offset : end if end >= 0 else len(self.data)])


class SymbolTable:
    """The symbols of one table with their string table."""

    def __init__(self, data: bytes, strings: Strings) -> None:
        self.records = SYMBOL.unpack_all(data) or [SymbolRecord(0, 0, 0, 0, 0, 0)]
        self.strings = strings
        self.changed = False
        self.order = list(range(len(self.records)))
        """New position of each symbol after `sort`, by its old index."""
        self._by_name: dict[bytes, list[int]] = {}
        for index, name in enumerate(self.names()):
            self._by_name.setdefault(name, []).append(index)

    def find_global(self, name: str) -> list[int]:
        """Return the indices of symbols named `name` that are not local."""
        return [i for i in self._by_name.get(name.encode(), []) if self.records[i].info >> 4 != STB_LOCAL]

    def find_local(self, name: str) -> list[int]:
        """Return the indices of local symbols named `name`."""
        return [i for i in self._by_name.get(name.encode(), []) if i and self.records[i].info >> 4 == STB_LOCAL]

    def add(self, name: str, info: int, other: int, section: int, value: int, size: int) -> None:
        """Append a symbol; the numbers are those of an Elf64_Sym."""
        self._by_name.setdefault(name.encode(), []).append(len(self.records))
        self.order.append(len(self.records))
        self.records.append(SymbolRecord(self.strings.add(name), info, other, section, value, size))
        self.changed = True

    def update(self, index: int, **values: int) -> None:
        """Change fields of one symbol."""
        self.records[index] = self.records[index]._replace(**values)
        self.changed = True

    @property
    def first_global(self) -> int:
        """Return the value of sh_info: the index of the first symbol that is not local."""
        return next((i for i, r in enumerate(self.records) if i and r.info >> 4 != STB_LOCAL), len(self.records))

    def sort(self, hashed: bool) -> None:
        """Sort locals first and, for .gnu.hash (`hashed`), undefined ones before hashed ones, those by bucket.

        Afterwards, symbols cannot be found by name.
        """
        count = sum(self._is_hashed(r) for r in self.records[1:])
        buckets = gnu_bucket_count(count)

        def key(index: int) -> tuple[bool, bool, int]:
            record = self.records[index]
            if record.info >> 4 == STB_LOCAL:
                return False, False, 0
            if not hashed or not self._is_hashed(record):
                return True, False, 0
            return True, True, gnu_hash(self.strings.get(record.name)) % buckets

        new_order = [0, *sorted(range(1, len(self.records)), key=key)]
        moved = {old: new for new, old in enumerate(new_order)}
        self.records = [self.records[old] for old in new_order]
        self.order = [moved[index] for index in self.order]

    def names(self) -> list[bytes]:
        """Return the names of all symbols, in their order."""
        return [self.strings.get(record.name) for record in self.records]

    def gnu_hash_table(self) -> bytes:
        """Return the contents of DT_GNU_HASH; the table must be sorted for it."""
        first = next((i for i, r in enumerate(self.records) if i and self._is_hashed(r)), len(self.records))
        hashes = [gnu_hash(name) for name in self.names()[first:]]
        buckets = [0] * gnu_bucket_count(len(hashes))
        words = 1 << (len(hashes) * _BLOOM_BITS_PER_SYMBOL // 64).bit_length()
        bloom = [0] * words
        chain = []
        for i, value in enumerate(hashes):
            bucket = value % len(buckets)
            buckets[bucket] = buckets[bucket] or first + i
            last = i + 1 == len(hashes) or hashes[i + 1] % len(buckets) != bucket
            chain.append(value & ~1 | last)
            bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> _BLOOM_SHIFT) % 64
        return struct.pack(
            f"<IIII{words}Q{len(buckets)}I{len(chain)}I",
            len(buckets), first, words, _BLOOM_SHIFT, *bloom, *buckets, *chain,
        )  # fmt: skip

    def sysv_hash_table(self) -> bytes:
        """Return the contents of DT_HASH."""
        count = len(self.records)
        buckets = [0] * count
        chain = [0] * count
        for i, name in enumerate(self.names()):
            if i:
                bucket = sysv_hash(name) % count
                chain[i] = buckets[bucket]
                buckets[bucket] = i
        return struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chain)

    @staticmethod
    def _is_hashed(record: SymbolRecord) -> bool:
        return record.section != SHN_UNDEF and record.info >> 4 != STB_LOCAL


def gnu_bucket_count(symbols: int) -> int:
    """Return the number of buckets of a GNU hash table."""
    return max(1, symbols // 4)


def gnu_hash(name: bytes) -> int:
    """Return the hash of DT_GNU_HASH."""
    value = 5381
    for byte in name:
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """Return the hash of DT_HASH (ELF specification, "Hash Table")."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFFFFFF
    return value
