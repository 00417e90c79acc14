"""Bugs planted in programs, by rules on their text at marked places.

A program says in comments where bugs may be put, and where they show:

| mark | bug | shows as | at lines that end in |
| --- | --- | --- | --- |
| ``a[/*index*/ i]`` | one too far; one too early (``/*index above*/``: only the first) | `out-of-bounds` | its own |
| ``a[/*lds*/ i]`` | the same, where LDS begins and ends with the array | `out-of-bounds` | its own |
| ``/*size P*/ n * sizeof(int)`` | half of it | `out-of-bounds` | ``// uses P`` |
| ``/*early P*/`` and ``/*freed P*/ free;`` | the latter is at the former's place | `use-after-free` | ``// uses P`` |
| ``/*init P*/ statement;`` | it is not there | `uninitialised-read` | ``// reads P`` |
| ``/*barrier P*/ __syncthreads();`` | it is not there | `race`, `unordered-read` | ``// around P`` |
| ``/*atomic*/ atomicAdd(&a, b)`` | it is ``a += b`` | `race` | its own |

Lines that end in ``// may fault`` use addresses that were read from memory.

`P` is a name; a line may end in more than one such comment's text: ``// uses a; reads b; around 1, 2``. No rule adds or
removes a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RULES = ("above", "below", "lds above", "lds below", "size", "free", "init", "barrier", "atomic")
OUTSIDE, FREED, INIT, RACE = "out-of-bounds", "use-after-free", "uninitialised-read", "race"
_PLAIN = {
    "Add": "(({0} += {1}) - {1})",
    "Sub": "(({0} -= {1}) + {1})",
    "Max": "({0} = max({0}, {1}))",
    "Min": "({0} = min({0}, {1}))",
    "Or": "({0} |= {1})",
    "And": "({0} &= {1})",
    "Xor": "({0} ^= {1})",
    "Exch": "({0} = {1})",
}
"""What takes an atomic's place: the place and the value are put in."""
_MAIN = """
#undef HIP
#undef EXPECT
// With a bug there are errors and wrong results, and what comes after has its turn nevertheless.
#define HIP(call) (void)(call)
#define EXPECT(condition) (void)(condition)
{programs}
#include <cstring>
int main(int argc, char **argv) {{
  for (int at = 1; at < argc; ++at) {{
{calls}
  }}
  std::puts("done");
}}
"""


@dataclass(frozen=True)
class Bug:
    """A program's text with one bug."""

    name: str
    """A namespace in C++, which ends in a letter: a mangled name tells where it ends."""
    rule: str
    """One of `RULES`."""
    line: int
    """Where it was put, from 1 on."""
    text: str
    kind: str
    """Of the finding that there must be."""
    lines: frozenset[int]
    """All findings are at one of these."""
    further: frozenset[str] = frozenset()
    """Kinds that may be found besides, since they follow."""
    faults: frozenset[int] = frozenset()
    """Lines whose addresses are read from memory, which may be anything with a bug."""


def bugs_of(text: str) -> list[Bug]:
    """Return all that can be planted in a program, one each.

    Raises:
        ValueError: a mark is not understood, or nothing shows its bug.
    """
    lines = text.splitlines()
    bugs: list[Bug] = []
    faults = frozenset(_ending(lines, "may", "fault"))
    for number, line in enumerate(lines, 1):
        for mark in re.finditer(r"/\*(.*?)\*/ ?", line):
            for rule, kind, shown, changed in _planted(lines, number, mark):
                if not shown:
                    raise ValueError(f"line {number}: nothing shows {mark[0]}")
                kept = "\n".join([*lines[: number - 1], line[: mark.start()] + changed, *lines[number:]])
                if rule == "free":
                    kept = kept.replace(f"/*freed {mark[1].partition(' ')[2]}*/ {_freed(lines, mark)}", ";")
                further = frozenset({INIT}) if rule not in ("size", "free", "init") else frozenset[str]()
                bugs.append(Bug(f"bug{len(bugs)}x", rule, number, kept, kind, frozenset(shown), further, faults))
    return bugs


def _planted(lines: list[str], number: int, mark: re.Match[str]) -> Iterator[tuple[str, str, set[int], str]]:
    """Yield for each bug of a mark its rule, its kind, the lines at which it shows, and the line from there on."""
    rest = mark.string[mark.end() :]
    what, _, name = mark[1].partition(" ")
    own = {number}
    match what:
        case "index":
            for rule, step in (("above", "1l"), ("below", "-1l")):
                if name in ("", rule):
                    yield rule, OUTSIDE, own, f"{step} + {rest}"
        case "lds":
            for rule, step in (("lds above", "1"), ("lds below", "-1")):
                yield rule, OUTSIDE, own, f"{step} + {rest}"
        case "size":
            yield "size", OUTSIDE, _ending(lines, "uses", name), f"0.5 * {rest}"
        case "early":
            yield "free", FREED, _ending(lines, "uses", name), f"{_freed(lines, mark)} {rest}"
        case "init":
            yield "init", INIT, _ending(lines, "reads", name), ";"
        case "barrier":
            yield "barrier", RACE, _ending(lines, "around", name), ";"
        case "atomic":
            atomic = re.match(r"atomic(\w+)\(&([^,]+), ((?:[^()]|\([^()]*\))+)\)", rest)
            if atomic is None or atomic[1] not in _PLAIN:
                raise ValueError(f"line {number}: what is it plain? {rest}")
            yield "atomic", RACE, own, _PLAIN[atomic[1]].format(atomic[2], atomic[3]) + rest[atomic.end() :]
        case "freed":
            pass
        case _:
            raise ValueError(f"line {number}: no rule for {mark[0]}")


def _freed(lines: list[str], mark: re.Match[str]) -> str:
    """Return the statement that gives back what a mark names."""
    name = mark[1].partition(" ")[2]
    (statement,) = (line.partition(f"/*freed {name}*/")[2] for line in lines if f"/*freed {name}*/" in line)
    return statement.strip()


def _ending(lines: list[str], verb: str, name: str) -> set[int]:
    """Return the numbers of the lines whose last comment has a name behind a verb; what is read is used."""
    verbs = {"uses", "reads"} if verb == "uses" else {verb}
    endings = set()
    for number, line in enumerate(lines, 1):
        for part in line.rpartition("// ")[2].split(";") if "// " in line else ():
            first, _, names = part.strip().partition(" ")
            if first in verbs and name in names.split(", "):
                endings.add(number)
    return endings


def together(source: Path, bugs: list[Bug]) -> str:
    """Return the text of a program that runs those which its arguments name: bugs, and `clean`, what has none."""
    text = source.read_text()
    included = sorted(set(re.findall(r"^#include .*", text, re.MULTILINE)))
    programs, calls = [], []
    for name, variant in [("clean", text), *((bug.name, bug.text) for bug in bugs)]:
        body = re.sub(r"^#include .*", "", variant, flags=re.MULTILINE).replace("int main(", "void program(")
        programs.append(f'namespace {name} {{\n#line 1 "{source}"\n{body}\n}}')
        calls.append(f'    if (!std::strcmp(argv[at], "{name}"))\n      {name}::program();')
    return "\n".join(included) + _MAIN.format(programs="\n".join(programs), calls="\n".join(calls))
