"""Launches with their arguments, read from the packets that launch kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from luthier.objects.arguments import Argument, parameter_types


def _logged(program: Path, target: str, log: Path, *options: str) -> tuple[list[str], dict[str, Any]]:
    """Return what the program printed, and what the run reported."""
    done = run_luthier("run", "-t", "launch_log", "--device", f"emu:{target}", "--json", log, *options, "--", program)
    assert done.returncode == 0, done
    return done.stdout.split(), json.loads(log.read_text())


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("debug", [True, False])
def test_names_types_and_values(build_program: Callable[..., Path], tmp_path: Path, target: str, debug: bool) -> None:
    """A template, a kernel whose name has no types, and one that uses all registers."""
    program = build_program("arguments", *(["-g"] if debug else []))
    (wide, narrow), report = _logged(program, target, tmp_path / "log.json")
    launches, described = report["tools"][0]["tables"]
    arguments = {row[2]: dict(one.split("=") for one in row[-1].split(", ")) for row in launches["rows"]}
    typed, plain, full = (list(one.values()) for one in arguments.values())
    assert typed == [wide, "-2.5", "true", "-3", "0x3f80000000000007"]
    assert full == [narrow, "-2"]
    types: dict[str, list[str | None]] = {}
    for kernel, _, type, _, _ in described["rows"]:
        types.setdefault(kernel, []).append(type)
    assert types["_Z5typedIdEvPT_S0_ba4Pair"] == ["double*", "double", "bool", "signed char", "Pair"]
    if debug:
        assert plain == [wide, "0.100000001", str(1 << 63), "0x0"]
        assert [one.replace(" const", "") for one in types["plain"] if one] == [
            *("double*", "float", "unsigned long", "Pair*")
        ]
        assert list(arguments["plain"]) == ["to", "factor", "count", "pairs"]
        assert list(arguments["_Z4fullPis"]) == ["to", "value"]
    else:
        assert plain == [wide, str(0x3DCCCCCD), str(-(1 << 63)), "0x0"], "of no known type"
        assert set(types["plain"]) == {None}
    assert [row["instrumented"] for row in report["kernels"]] == [0, 0, 0], "kernels run as they are"


def test_arguments_of_kernels_that_are_refused(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """A selection of kernels is one of what is instrumented: every launch is logged."""
    _, report = _logged(
        build_program("arguments"), "gfx90a", tmp_path / "log.json", "--kernel", "plain", "--allow-nothing"
    )
    assert len(report["tools"][0]["tables"][0]["rows"]) == 3


@pytest.mark.parametrize(
    ("symbol", "types"),
    [
        ("_Z5saxpyfPKfPfi", ["float", "float const*", "float*", "int"]),
        ("_Z4nonev", []),
        ("_Z3mapISt4pairIiSt5tupleIJffEEEEvPT_PFivE", ["std::pair<int, std::tuple<float, float> >*", "int (*)()"]),
        ("plain", []),
    ],
)
def test_types_of_mangled_names(symbol: str, types: list[str]) -> None:
    assert [one.replace("> >", ">>") for one in parameter_types(symbol)] == [one.replace("> >", ">>") for one in types]


@pytest.mark.parametrize(
    ("type", "contents", "pointer", "text"),
    [
        ("float", bytes.fromhex("00002040"), False, "2.5"),
        ("double const", bytes.fromhex("9a9999999999b93f"), False, "0.1"),
        ("_Float16", bytes.fromhex("003c"), False, "1"),
        ("unsigned char", b"\xff", False, "255"),
        ("", b"\xff\xff", False, "-1"),
        ("", b"\x01\x02\x03", False, "0x30201"),
        ("Pair", b"\x01\x02\x03\x04", False, "0x4030201"),
        ("int*", bytes(8), True, "0x0"),
        ("int", b"\x01\x00", False, "0x1"),
        ("int", b"", False, "unknown"),
    ],
)
def test_texts(type: str, contents: bytes, pointer: bool, text: str) -> None:
    size = len(contents) or 4
    assert Argument("x", type, 0, size, pointer, contents).text == text
