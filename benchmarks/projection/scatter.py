"""Draw measured and projected times as an SVG, both axes logarithmic.

    python benchmarks/projection/scatter.py POINTS.json docs/projection-mi250x.svg "MI250X: dedispersion"

POINTS.json is what validate.py writes with --points.
"""

from __future__ import annotations

import html
import math
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from luthier.errors import LuthierError
from validate import Projected

SIZE, LEFT, TOP = 420, 64, 34
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#65a30d", "#be185d", "#475569")


def drawn_points(points: Sequence[Projected], title: str) -> str:
    """Return the SVG: a dot for each launch, coloured by what bounds it; lines for equal times and for factors of 2.

    Raises:
        LuthierError: there are no points.
    """
    if not points:
        raise LuthierError("no points to draw: validate.py --points writes them")
    times = [time for point in points for time in (point.kernel.time_ms, point.projected_ms)]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high += high == low

    def at(time: float) -> float:
        return SIZE * (math.log10(time) - low) / (high - low)

    bounds = sorted({point.bound_by for point in points})
    colours = dict(zip(bounds, (COLOURS[number % len(COLOURS)] for number in range(len(bounds))), strict=True))
    return "\n".join(_lines(points, title, colours, at, range(low, high + 1)))


def _lines(
    points: Sequence[Projected],
    title: str,
    colours: Mapping[str, str],
    at: Callable[[float], float],
    powers: Sequence[int],
) -> Iterator[str]:
    width, height = LEFT + SIZE + 150, TOP + SIZE + 50
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
    yield ' font-size="12">'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield f'<text x="{LEFT}" y="20" font-size="14">{html.escape(title)}</text>'
    yield f'<g transform="translate({LEFT} {TOP})"><rect width="{SIZE}" height="{SIZE}" fill="none" stroke="#94a3b8"/>'
    first, last = 10.0 ** powers[0], 10.0 ** powers[-1]
    for factor, dash in ((1, ""), (2, ' stroke-dasharray="4 4"'), (0.5, ' stroke-dasharray="4 4"')):
        begin, end = max(first, first / factor), min(last, last / factor)
        yield (
            f'<line x1="{at(begin):.1f}" y1="{SIZE - at(begin * factor):.1f}" x2="{at(end):.1f}" '
            f'y2="{SIZE - at(end * factor):.1f}" stroke="#94a3b8"{dash}/>'
        )
    for power in powers:
        place, text = at(10.0**power), f"{10.0**power:g} ms"
        yield f'<text x="{place:.1f}" y="{SIZE + 16}" text-anchor="middle">{text}</text>'
        yield f'<text x="-6" y="{SIZE - place + 4:.1f}" text-anchor="end">{text}</text>'
    for bound, colour in colours.items():
        dots = (
            f"M{at(point.kernel.time_ms):.1f} {SIZE - at(point.projected_ms):.1f}h0"
            for point in points
            if point.bound_by == bound
        )
        yield f'<path stroke="{colour}" stroke-opacity="0.6" stroke-width="5" stroke-linecap="round" d="'
        yield from textwrap.wrap(" ".join(dots), 120)
        yield '"/>'
    for number, (bound, colour) in enumerate(colours.items()):
        y = 14 + 18 * number
        yield f'<circle cx="{SIZE + 14}" cy="{y - 4}" r="4" fill="{colour}"/>'
        yield f'<text x="{SIZE + 24}" y="{y}">{bound}</text>'
    yield f'<text x="{SIZE / 2}" y="{SIZE + 38}" text-anchor="middle">measured</text>'
    yield f'<text transform="translate(-50 {SIZE / 2}) rotate(-90)" text-anchor="middle">projected</text></g></svg>\n'


def main(arguments: Sequence[str]) -> int:
    """Draw the points that the command line names."""
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        points = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=list[Projected])
        Path(arguments[1]).write_text(drawn_points(points, arguments[2]))
    except (OSError, LuthierError, msgspec.DecodeError) as problem:
        print(f"scatter: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
