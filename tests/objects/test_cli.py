"""`luthier objects`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main

Compile = Callable[..., Path]


def test_table(compile_hip: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    path = compile_hip("--offload-device-only", "--offload-arch=gfx942", "--offload-arch=gfx1100")
    assert main(["objects", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    first, second = captured.out.strip().split("\n\n")
    for number, block, target, wave in ((0, first, "gfx1100", "32"), (1, second, "gfx942", "64")):
        title, headings, *rows = block.splitlines()
        assert title.startswith(f"{path}[{target}]: object {number}, {target}, code object v6, ")
        assert title.endswith(" bytes, 3 kernels")
        columns = headings.split()
        assert columns == [
            "KERNEL",
            "CODE",
            "VGPRS",
            "AGPRS",
            "SGPRS",
            "WAVE",
            "LDS",
            "SCRATCH",
            "KERNARG",
            "ARGUMENTS",
        ]
        cells = {row.split()[0]: dict(zip(columns[1:], row.split()[1:], strict=False)) for row in rows}
        assert [*cells] == ["vector_add", "reverse", "scratch"]
        assert all(row["WAVE"] == wave and int(row["CODE"]) > 50 and int(row["VGPRS"]) > 0 for row in cells.values())
        assert [row["LDS"] for row in cells.values()] == ["0", "256", "0"]
        assert int(cells["scratch"]["SCRATCH"]) >= 128
        assert rows[1].endswith("1 global_buffer, 2 by_value")
        assert "hidden" in rows[0]


def test_json(code_object: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    path = code_object("gfx942")
    assert main(["objects", "--json", str(path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["name"] == str(path)
    assert (row["target"], row["code_object_version"], row["size"]) == ("gfx942", 6, path.stat().st_size)
    reverse = row["kernels"][1]
    assert (reverse["name"], reverse["lds"], reverse["wave_size"], reverse["max_flat_workgroup_size"]) == (
        "reverse", 256, 64, 64,
    )  # fmt: skip
    assert [(a["offset"], a["size"], a["value_kind"]) for a in reverse["arguments"]] == [
        (0, 8, "global_buffer"),
        (8, 1, "by_value"),
        (16, 8, "by_value"),
    ]
    sizes = {variable["name"]: variable["size"] for variable in row["variables"]}
    assert (sizes["table"], sizes["uninitialized"]) == (16, 4000)
    assert row["relocations"] == 1


def test_unknown_processor_is_told(compile_hip: Compile, capsys: pytest.CaptureFixture[str]) -> None:
    path = compile_hip("--offload-device-only", "--offload-arch=gfx942", "--offload-arch=gfx803")
    assert main(["objects", str(path)]) == 0
    assert "[gfx803]: object 0, not supported: no known target has EF_AMDGPU_MACH 0x2a" in capsys.readouterr().out
    assert main(["objects", "--json", str(path)]) == 0
    (unknown,) = [row for row in json.loads(capsys.readouterr().out) if "unsupported" in row]
    assert unknown["id"].endswith("gfx803")


def test_names_cannot_play_with_the_terminal(
    code_object: Compile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.co"
    path.write_bytes(code_object("gfx942").read_bytes().replace(b"vector_add", b"vec\x1b[2Jadd"))
    assert main(["objects", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"vec\u001b[2Jadd" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\n", "not a code object, offload bundle, ELF file or archive"),
        (b"\x7fELF\2\1\1\x40\4", "truncated to 9 bytes"),
        (None, "No such file"),
    ],
)
def test_bad_input(content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    assert main(["objects", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("luthier objects: error: ")
    assert message in captured.err
    assert str(path) in captured.err
