"""Archives of captures are ZIP archives, as `zipfile` reads them."""

from __future__ import annotations

import io
import zipfile

from luthier.support.archives import stored_archive


def test_zipfile_reads_what_is_written() -> None:
    members = {"manifest.json": b"{}", "empty": b"", "pages": bytes(range(256)) * 300}
    data = stored_archive(members)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == members
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_STORED}
    assert stored_archive(members) == data


def test_an_archive_may_be_empty() -> None:
    with zipfile.ZipFile(io.BytesIO(stored_archive({}))) as archive:
        assert archive.namelist() == []
