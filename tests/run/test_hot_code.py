"""Programs whose kernels become hot: functions of their runs of instructions are made beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running import hot

Executed = Callable[..., list[tuple[bytes, dict[int, tuple[int, int]]]]]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("rounds", "gfx1030"),
        ("many", "gfx1030"),
        pytest.param("rounds", "gfx90a", marks=pytest.mark.thorough),
        pytest.param("many", "gfx90a", marks=pytest.mark.thorough),
    ],
)
def test_a_program_is_right(
    build_program: Callable[[str], Path],
    executed: Executed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    target: str,
) -> None:
    """It executes as many instructions as without, and its service has made functions for it, unless it ends before."""
    program, made = build_program(name), tmp_path / "made"
    monkeypatch.setattr(hot, "HOT", 1 << 60)
    alone = executed(f"emu:{target}", program)
    take = hot.compile_runs

    def compile_runs(code: DecodedCode, stretch: range) -> None:
        take(code, stretch)
        with made.open("a") as file:
            file.write(f"{sum(len(table.run_lengths) for table in code.tables_with_runs().values())}\n")

    monkeypatch.setattr(hot, "HOT", 1 << 10)
    monkeypatch.setattr(hot, "LEAST", 1)
    monkeypatch.setattr(hot, "compile_runs", compile_runs)
    assert executed(f"emu:{target}", program) == alone
    assert name == "many" or any(map(int, made.read_text().split()))
