"""Stores to LDS that other waves may not see behind a barrier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.hazards.wait_counters import check_order
from luthier.lifting import lift
from luthier.objects import CodeObject

OLD = {"W": "ds_write_b32 v0, v1", "R": "ds_read_b32 v2, v3", "B": "s_barrier", "0": "s_waitcnt lgkmcnt(0)"}
NEW = {
    "W": "ds_store_b32 v0, v1",
    "R": "ds_load_b32 v2, v3",
    "B": "s_barrier_signal -1\n s_barrier_wait -1",
    "0": "s_wait_dscnt 0x0",
}
# (target, what runs, counters that are enough); W: store, R: load, B: barrier, 0: wait for all
CASES = [
    ("gfx90a gfx942 gfx1030 gfx1100 gfx1201", "W B R", [0]),
    ("gfx90a gfx942 gfx1030 gfx1100 gfx1201", "W 0 B R", []),
    ("gfx942 gfx1201", "W B", []),
    ("gfx942 gfx1201", "R B R", []),
    ("gfx942 gfx1201", "W B 0 B R", []),
    ("gfx942 gfx1201", "W B B R", [0]),
    ("gfx942", "W R B R", [1]),
    ("gfx942", "W R s_waitcnt~lgkmcnt(1) B R", []),
    ("gfx942", "W s_waitcnt~vmcnt(0) B R", [0]),
    ("gfx942", "ds_add_u32~v0,~v1 B R", [0]),
    ("gfx942", "ds_add_rtn_u32~v4,~v0,~v1 s_waitcnt~lgkmcnt(0) B ds_add_rtn_u32~v4,~v0,~v1", []),
    ("gfx942", "global_store_dword~v0,~v1,~s[2:3] B R", []),
    ("gfx942", "W ds_bpermute_b32~v2,~v3,~v4 B ds_bpermute_b32~v2,~v3,~v4", []),
    ("gfx942", "W B flat_load_dword~v2,~v[4:5]", [0]),
    ("gfx942", "flat_store_dword~v[4:5],~v0 B R", []),
    ("gfx942", "W B global_load_dword~v2,~v4,~s[2:3]", []),
    ("gfx942", "1: B R 0 W s_cbranch_scc0~1b", [0]),
    ("gfx942", "1: B R W 0 s_cbranch_scc0~1b", []),
    ("gfx942", "s_cbranch_scc0~1f W 1: B R", [0]),
    ("gfx1201", "W s_barrier_signal~-1 R s_barrier_wait~-1", []),
    ("gfx1201", "W s_barrier_signal~-1 R s_barrier_wait~-1 R", [0]),
    ("gfx1201", "s_barrier_signal~-1 W s_barrier_wait~-1 R", []),
    ("gfx1201", "W s_barrier_signal~-3 s_barrier_wait~-3 R", []),
]


def kernel(target: str, text: str, workgroup: int = 1024) -> CodeObject:
    words = (NEW if target.startswith("gfx12") else OLD) | {"~": " "}
    lines = [words.get(word, word.replace("~", " ")) for word in text.split()]
    return assembled(kernel_text(function("k", [*lines, "s_endpgm"]), target, workgroup=workgroup, lds=1024), target)


@pytest.mark.parametrize(
    ("target", "text", "enough"), [(target, text, enough) for some, text, enough in CASES for target in some.split()]
)
def test_stores_before_barriers(target: str, text: str, enough: list[int]) -> None:
    assert [finding.enough for finding in check_order(lift(kernel(target, text), "k"))] == enough


def test_one_wave_needs_no_wait() -> None:
    assert check_order(lift(kernel("gfx942", "W B R", workgroup=64), "k")) == ()
    assert check_order(lift(kernel("gfx1201", "W B R", workgroup=64), "k"))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a finding of a kind of its own: no register is touched."""
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx942", "W B R").data)
    assert main(["check", str(path), "--check", "waits"]) == 0
    assert main(["check", str(path)]) == 1
    assert re.search(
        r"\(s_barrier\) .*\(memory order\): nothing waits for .*ds_write.*lgkmcnt\(0\)", capsys.readouterr().out
    )
