"""Several GPUs of today's ROCm at work together: RCCL in one process and in several, ranks of MPI under a tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import LUTHIER, run_luthier
from kept import run
from pyarrow import parquet
from rocm_stacks import built, stack

from .conftest import PROGRAMS

RELEASE = "7.2"
PACKAGES = ("librccl-dev", "librccl1-tests", "libopenmpi-dev", "openmpi-bin")
pytestmark = pytest.mark.rocm(RELEASE, *PACKAGES)

TARGETS = ("gfx90a", "gfx942", "gfx1100")
ROOT_MAY = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
MPIRUN = ("mpirun", "--oversubscribe", "-n")
NO_RECLAIM = "HSA_NO_SCRATCH_RECLAIM=1"
"""What RCCL wants on gfx942 where it does not know the firmware."""


def program(name: str, after: str) -> Path:
    """Return a program of ours that is linked with a library of the stack."""
    return built(PROGRAMS / f"{name}.hip", TARGETS, release=RELEASE, packages=PACKAGES, after=after)


@pytest.mark.thorough
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("count", [2, 4])
def test_collectives(target: str, apart: bool, count: int) -> None:
    """All-reduce, broadcast and all-gather give each device what all have given."""
    command = program("collectives", "-lrccl"), *([str(count)] if apart else [])
    devices = ",".join([f"emu:{target}"] * count)
    before = [*stack(RELEASE, *PACKAGES), "env", NO_RECLAIM]
    done = run_luthier("run", "--device", devices, "--", *command, before=before, timeout=900)
    assert done.returncode == 0, done
    assert f"{count} devices in {f'{count} processes' if apart else 'one process'}\n" in done.stdout


def of_ranks(folder: Path) -> dict[int, int]:
    """Return the instructions that were counted for each rank of a run."""
    ranks = {one["process"]: one["rank"] for one in json.loads((folder / "summary.json").read_text())["processes"]}
    rows = parquet.read_table(folder / "counters.parquet").to_pylist()
    return {ranks[row["process"]]: row["unsigned"][0] for row in rows}


def test_ranks_in_one_run(tmp_path: Path) -> None:
    """Each rank has its device and its own numbers; together they are what the devices executed."""
    ranks = program("ranks", "$(mpicc --showme:compile) $(mpicc --showme:link)")
    before = [*stack(RELEASE, *PACKAGES), "env", *ROOT_MAY]
    command = "--device", "emu:gfx942,emu:gfx942", "--", *MPIRUN, 3, ranks
    done = run_luthier("run", "-t", "instr_count:per_wave=true", "-o", tmp_path / "run", *command, before=before)
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 3: gfx942:sramecc-:xnack-" for rank in range(3)]
    counts = of_ranks(tmp_path / "run")
    assert counts == {rank: counts[0] * (rank + 1) for rank in range(3)}
    run_luthier("run", "--executed", "--json", tmp_path / "alone.json", *command, before=before).check_returncode()
    executed = json.loads((tmp_path / "alone.json").read_text())["executed"]
    own = [one["wave_instructions"] for one in executed if one["kernel"] and not one["kernel"].startswith("__amd_")]
    assert sum(counts.values()) == sum(own) > 0


def test_a_run_for_each_rank(tmp_path: Path) -> None:
    """As on several machines; merged they are one run."""
    ranks = program("ranks", "$(mpicc --showme:compile) $(mpicc --showme:link)")
    script = '"$0" run -t instr_count -o "$1/$OMPI_COMM_WORLD_RANK" --device emu:gfx942,emu:gfx1100 -- "$2"'
    before = [*stack(RELEASE, *PACKAGES), "env", *ROOT_MAY]
    run([*before, *MPIRUN, "2", "sh", "-c", script, LUTHIER, str(tmp_path), str(ranks)])
    run_luthier("merge", tmp_path / "0", tmp_path / "1", "-o", tmp_path / "all").check_returncode()
    counts = of_ranks(tmp_path / "all")
    assert set(counts) == {0, 1}
    assert counts == of_ranks(tmp_path / "0") | of_ranks(tmp_path / "1")


def test_who_overwrites_the_way_to_the_devices_is_told() -> None:
    """Open MPI does where the user wants it to: no device then, and no crash."""
    ranks = program("ranks", "$(mpicc --showme:compile) $(mpicc --showme:link)")
    before = [*stack(RELEASE, *PACKAGES), "env", "OMPI_MCA_memory=patcher"]
    done = run_luthier("run", "--device", "emu:gfx942", "--", ranks, before=before)
    assert done.returncode == 2, done
    assert "has overwritten the code of mmap" in done.stderr
