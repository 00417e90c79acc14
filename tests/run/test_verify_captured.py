"""Captured launches, original and patched: what `luthier verify` finds equal, and what not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from luthier import ExecutionCounts, InstrumentationTask, Tool
from luthier.capture import read_capture
from luthier.capture.place import AddressTaken
from luthier.verify import KernelVerdict
from luthier.verify.captured import verify_capture

from .conftest import Luthier, apart
from .test_replay import spoil


def verified(file: Path, tool: Tool) -> KernelVerdict:
    """The verdict on a capture, by a process in which its addresses are free."""

    def work() -> KernelVerdict | None:
        try:
            return verify_capture(read_capture(file), tool)
        except AddressTaken:
            return None

    for _ in range(8):
        verdict: KernelVerdict | None = apart(work)
        if verdict is not None:
            return verdict
    pytest.skip("each process has something where the capture's memory was")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("name", ["reduction", "pointers"])
def test_counters_are_the_truth(captured: Callable[..., list[Path]], luthier: Luthier, name: str, target: str) -> None:
    files = captured(name, target)
    truth = json.loads(luthier("replay", "--json", *files).stdout)
    done = luthier("verify", "--json", "-t", "instr_count:per_wave", "-t", "opcode_histogram", files[0].parent)
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}) == (0, {"equal"}), done
    for row, replayed in zip(rows, truth, strict=True):
        assert row["instructions"][0] == replayed["instructions"]
        assert row["instructions"][1] >= row["instructions"][0]
        assert row["counters"]["counter"] == row["expected"]["counter"] > 0
        assert row["counters"]["counter"] == replayed["instructions"] - row["not_lifted"]
        assert row["counted"] > 0
        assert row["compared_bytes"] > 0


@pytest.mark.thorough
def test_a_cluster_verifies_the_same(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    words = ["verify", "--json", "-t", "instr_count", captured("reduction")[0].parent]
    local, remote = (json.loads(luthier(*words, *more).stdout) for more in ([], ["--scheduler", "local"]))
    assert local == remote
    assert len(local) == len(captured("reduction"))


def test_a_counter_that_is_wrong(captured: Callable[..., list[Path]], vectors: type[Tool]) -> None:
    class Wrong(vectors):  # type: ignore[misc, valid-type]
        """Expects one too many."""

        name = "wrong"

        def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
            return {name: value + 1001 for name, value in super().expected(task, counts).items()}

    class Right(vectors):  # type: ignore[misc, valid-type]
        """Expects its own counts plus 1000."""

        name = "right"

        def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
            return {name: value + 1000 for name, value in super().expected(task, counts).items()}

    file = captured("histogram")[0]
    right, wrong = verified(file, Right()), verified(file, Wrong())
    assert right.problems == ()
    assert right.counters["counter"] == right.expected["counter"] > 1000
    assert wrong.problems == (
        f"counter is {right.counters['counter']}, the emulator counted {right.counters['counter'] + 1}",
    )


def test_other_bytes_are_a_problem(captured: Callable[..., list[Path]]) -> None:
    class Removes(Tool):
        """Takes stores out of the program."""

        name = "removes"

        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.mnemonic.startswith("global_store"):
                    task.remove(instruction)

    verdict = verified(captured("reduction")[0], Removes())
    assert "bytes differ" in verdict.problems[0]


@pytest.mark.thorough
def test_exit_codes(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    file = captured("reduction")[0]
    spoilt = spoil(file, temporary / "spoilt.lcap")
    (temporary / "damaged.lcap").write_bytes(b"PK")
    for words, code, message in (
        ([file, "-t", "instr_count"], 0, ": equal"),
        ([spoilt, "-t", "instr_count"], 2, "the original differs from the recorded launch: 1 bytes differ"),
        ([temporary / "damaged.lcap", "-t", "instr_count"], 2, "not a capture"),
        ([file, "-t", "instr_count", "--plan", "plan.toml"], 1, "--plan is for code objects"),
        ([file, "-t", "no_such_tool"], 1, "no_such_tool"),
        ([file], 2, "-t"),
        ([temporary, "-t", "instr_count"], 2, "spoilt.lcap"),
    ):
        done: Any = luthier("verify", *words)
        assert (done.returncode, message in done.stdout + done.stderr) == (code, True), done


def test_options_of_captures_alone(luthier: Luthier, temporary: Path) -> None:
    done = luthier("verify", temporary / "x.hsaco", "-t", "instr_count", "--scheduler", "local")
    assert (done.returncode, "--scheduler is for captured launches" in done.stderr) == (1, True), done
