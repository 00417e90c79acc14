"""Hooks that do nothing but count, recognised in their optimized IR: one atomic addition to a variable of the tool, of
a constant or of so many times the active lanes, that reads no register and whose result nobody uses."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class PlainCount:
    """What such a hook adds, each time it runs."""

    symbol: str
    """The variable."""
    offset: int
    """Bytes from its beginning to the 64-bit number that is added to."""
    weight: int
    lanes: bool
    """Once for each active lane, not once for the wave."""


_VALUE = r"(?:%[\w.]+|-?\d+)"
_BALLOT = re.compile(r"(%[\w.]+) = (?:tail )?call i(?:32|64) @llvm\.amdgcn\.ballot\.i(?:32|64)\(i1 true\)$")
_COUNT = re.compile(
    r"(%[\w.]+) = (?:tail )?call (?:range\([^)]*\) )?i(?:32|64) @llvm\.ctpop\.i(?:32|64)\(i(?:32|64) (%[\w.]+)\)$"
)
_EXTENSION = re.compile(r"(%[\w.]+) = zext (?:nneg )?i32 (%[\w.]+) to i64$")
_PRODUCT = re.compile(r"(%[\w.]+) = (mul|shl) (?:nuw )?(?:nsw )?i(?:32|64) (%[\w.]+), (\d+)$")
_GLOBAL = r'@(?:"(?P<quoted>[^"]+)"|(?P<name>[\w.$-]+))'
_POINTER = (
    r"ptr (?:addrspace\(1\) )?(?:nonnull )?(?:getelementptr (?:inbounds )?(?:nuw )?(?:nusw )?\(i8, )?"
    rf"(?:ptr )?(?:addrspace\(1\) )?(?:addrspacecast \(ptr addrspace\(1\) )?{_GLOBAL}(?: to ptr\))?"
    r"(?:, i64 (?P<offset>\d+)\))?"
)
_WAVE_ADD = re.compile(
    rf'(?:%[\w.]+ = )?(?:tail )?call (?:noundef )?i64 @"luthier::sAtomicAdd\.i64\.ptr[\w.()]*\.i64"\({_POINTER}, '
    rf"i64 (?P<value>{_VALUE})\)$"
)
_LANE_ADD = re.compile(
    rf"%[\w.]+ = atomicrmw add {_POINTER}, i64 (?P<value>-?\d+) (?:syncscope\(\"[\w-]+\"\) )?monotonic, align 8$"
)


def plain_count(body: str) -> PlainCount | None:
    """What a payload adds, if that is all it does.

    Args:
        body: the lines of its function, intrinsics not yet replaced.
    """
    masks: set[str] = set()
    times: dict[str, int] = {}
    found: PlainCount | None = None
    for raw in body.splitlines():
        line = re.sub(r"(?:, ![\w.]+ !\d+)+$| #\d+$", "", raw.strip())
        line = re.sub(r" #\d+$", "", line)
        if not line or line == "ret void":
            continue
        if match := _BALLOT.match(line):
            masks.add(match[1])
        elif (match := _COUNT.match(line)) and match[2] in masks:
            times[match[1]] = 1
        elif (match := _EXTENSION.match(line)) and match[2] in times:
            times[match[1]] = times[match[2]]
        elif (match := _PRODUCT.match(line)) and match[3] in times:
            factor = int(match[4])
            times[match[1]] = times[match[3]] * (factor if match[2] == "mul" else 1 << min(factor, 63))
        elif found is None and (match := _WAVE_ADD.match(line)):
            value = match["value"]
            if value.startswith("%") and value not in times:
                return None
            weight = times[value] if value.startswith("%") else int(value)
            found = PlainCount(*_place(match), weight, value.startswith("%"))
        elif found is None and (match := _LANE_ADD.match(line)):
            found = PlainCount(*_place(match), int(match["value"]), True)
        else:
            return None
    return found


def _place(match: re.Match[str]) -> tuple[str, int]:
    return match["quoted"] or match["name"], int(match["offset"] or 0)
