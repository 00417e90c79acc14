"""Registers, LDS and private memory that kernels use and their descriptors do not allocate, in the commands (cases:
../filetests/check/unallocated.test)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.lifting import lift
from luthier.lifting.allocation import unallocated_memory
from luthier.objects import CodeObject
from wait_kernels import kernel


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They tell it, and the kernel is not patched: with more registers it would be another one."""
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx1100", "v_mov_b32 v13, 0; v_mov_b32 v3, 0", vgprs=8).data)
    sentence = "v_mov_b32_e32 v13, 0 at 0x{:x} uses v13; the kernel descriptor allocates 8"
    sentence = sentence.format(lift(CodeObject(path.read_bytes()), "k").kernel.entry)
    for command, status in (("objects", 0), ("lift", 0), ("check", 1)):
        assert main([command, str(path)]) == status
        assert sentence in capsys.readouterr().out
    assert main(["objects", "--json", str(path)]) == 0
    ((row,),) = (one["kernels"] for one in json.loads(capsys.readouterr().out))
    assert [finding["register"] for finding in row["unallocated"]] == ["v13"]
    assert main(["patch", str(path), "-t", "instr_count", "-o", str(tmp_path / "out")]) == 1
    assert "refused, unallocated" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "body", ["v_mov_b32 v0, 4; ds_write_b32 v0, v1 offset:1020", "scratch_store_dword v0, v1, off"]
)
def test_memory_in_commands(body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.co"
    object = kernel("gfx942", body, hidden=1)
    path.write_bytes(object.data)
    (finding,) = unallocated_memory(lift(object, "k"))
    for command, status in (("objects", 0), ("lift", 0), ("check", 1)):
        assert main([command, str(path)]) == status
        assert finding.sentence in capsys.readouterr().out
    assert main(["patch", str(path), "-t", "instr_count", "-o", str(tmp_path / "out")]) == 1
    assert "refused, unallocated" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
