"""The picture of the page in the documents is made by a script."""

from __future__ import annotations

import struct
from pathlib import Path

from draw_report import HEIGHT, PICTURE, WIDTH, photograph
from luthier.cli.main import main


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height, as a PNG's header has them."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_the_picture_is_one_of_a_page(mix_run: Path, tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    assert main(["report", str(mix_run), "--format", "html", "-o", str(page)]) == 0
    photograph(page, picture)
    assert size_of(picture) == size_of(PICTURE) == (WIDTH, HEIGHT)
    assert picture.stat().st_size > 50_000, "more than an empty page"
