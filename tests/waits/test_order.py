"""Stores to LDS that other waves may not see behind a barrier (cases: ../filetests/check/order.test)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.hazards.wait_counters import check_order
from luthier.lifting import lift
from luthier.objects import CodeObject

BODY = ["lds_store v0, v1", "barrier", "lds_load v2, v3", "s_endpgm"]


def kernel(target: str, workgroup: int = 1024) -> CodeObject:
    return assembled(kernel_text(function("k", BODY), target, workgroup=workgroup, lds=1024), target)


def test_one_wave_needs_no_wait() -> None:
    assert check_order(lift(kernel("gfx942", workgroup=64), "k")) == ()
    assert check_order(lift(kernel("gfx1201", workgroup=64), "k"))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a finding of a kind of its own: no register is touched."""
    path = tmp_path / "k.co"
    path.write_bytes(kernel("gfx942").data)
    assert main(["check", str(path), "--check", "waits"]) == 0
    assert main(["check", str(path)]) == 1
    assert re.search(
        r"\(s_barrier\) .*\(memory order\): nothing waits for .*ds_write.*lgkmcnt\(0\)", capsys.readouterr().out
    )
