"""Draw where Luthier sits between a program and a GPU: docs/place.svg.

Use: python scripts/draw_place.py [--check]    (--check: exit code 1 if the drawing is not that of this script)
"""

from __future__ import annotations

import sys
from xml.sax.saxutils import escape

from draw_packages import ROOT, write_or_check

DRAWING = ROOT / "docs" / "place.svg"
WIDTH, HEIGHT = 900, 370
OURS, THEIRS = "#dcebdc", "#eef3fa"
"""Colours of Luthier's parts and of all others."""
BOXES = (
    (20, 20, 330, 50, THEIRS, "program", "HIP, OpenCL, OpenMP, Python; unchanged"),
    (20, 95, 330, 50, THEIRS, "libamdhip64, libhsa-runtime64", "the ROCm of the machine; unchanged"),
    (20, 170, 330, 50, OURS, "Luthier's tool library", "gives ROCr the patched copy of each kernel"),
    (20, 295, 155, 55, THEIRS, "driver and GPU", "--device hip"),
    (195, 295, 155, 55, OURS, "emulated GPU", "--device emu:gfx90a"),
    (560, 20, 320, 50, OURS, "your tool, or one that ships", "hooks in HIP, their places in Python"),
    (560, 170, 320, 50, OURS, "luthier run", "lifts, patches and caches kernels; reads counters"),
    (560, 295, 320, 55, OURS, "luthier report", "summary, page, CI checks, lcov, time line"),
)
"""Left, top, width, height, colour, title and text of each box."""
ARROWS = (
    (185, 70, 185, 95, ""),
    (185, 145, 185, 170, ""),
    (97, 220, 97, 295, ""),
    (272, 220, 272, 295, ""),
    (720, 70, 720, 170, "chooses instructions"),
    (350, 185, 560, 185, "kernel at its first launch"),
    (560, 205, 350, 205, "patched kernel"),
    (720, 220, 720, 295, "results, in a folder"),
)
"""Begin, end and text of each arrow."""


def drawing() -> str:
    """Return the SVG."""
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for left, top, width, height, colour, title, about in BOXES:
        middle = left + width // 2
        text += [
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5" fill="{colour}" stroke="#456"/>',
            f'<text x="{middle}" y="{top + 21}" text-anchor="middle" font-size="14">{escape(title)}</text>',
            f'<text x="{middle}" y="{top + 39}" text-anchor="middle" font-size="12" fill="#444">{escape(about)}</text>',
        ]
    for begin, above, end, below, about in ARROWS:
        text.append(f'<path d="M{begin} {above} L{end} {below}" stroke="#555" marker-end="url(#tip)"/>')
        if about and above == below:
            place = above - 6 if end > begin else above + 16
            text.append(
                f'<text x="{(begin + end) // 2}" y="{place}" text-anchor="middle" font-size="12">{about}</text>'
            )
        elif about:
            text.append(f'<text x="{begin + 8}" y="{(above + below) // 2 + 4}" font-size="12">{about}</text>')
    return "\n".join([*text, "</svg>", ""])


if __name__ == "__main__":
    sys.exit(write_or_check(DRAWING, drawing()))
