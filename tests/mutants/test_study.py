"""Mutants of kernels of all kinds: every wait and wait state removed or weakened is found, or shown to be redundant."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import mutation_study
import pytest
from effort import EVERYTHING, FAMILIES, sample
from kept import ROOT
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.verify.launch_plan import LaunchPlan, read_plans
from mutation import mutants
from mutation_study import Launches, Static, Study, counted
from padded import padded_kernel
from random_kernels import WAVES, random_kernel

CompileObject = Callable[..., Path]
HIP = ROOT / "tests" / "proof" / "kernels.hip"
PLANS = read_plans(ROOT / "tests" / "proof" / "kernels.toml")
OLD = ("gfx906", "gfx90a", "gfx1030")
"""Targets that clang 15 knows."""
BUILDS = [
    (target, compiler, level)
    for compiler in (15, 22)
    for level in ("-O0", "-O1", "-O2", "-O3")
    for target in FAMILIES
    if compiler > 15 or target in OLD
]
SHARE = 3
"""One kernel in so many of each build."""


def kernels_of(build: tuple[str, int, str]) -> list[str]:
    """Other ones for each build; all of them over all builds of a level."""
    first = (BUILDS.index(build) + zlib.crc32(build[2].encode())) % SHARE
    return list(PLANS)[first::SHARE]


CASES = [(*build, kernel) for build in BUILDS for kernel in kernels_of(build)]
CASES.sort(key=lambda case: zlib.crc32(repr(case).encode()))  # a run that is ended early has seen some of all


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "compiler", "level", "kernel"), CASES)
def test_hip(compile_object: CompileObject, target: str, compiler: int, level: str, kernel: str) -> None:
    object = load_object(compile_object(HIP, target, level, clang=f"clang-{compiler}"))
    name = f"{target} {kernel}"
    counted(f"HIP, clang {compiler} {level}", name, object, PLANS[kernel], f"{name} {compiler} {level}")


APPS = read_plans(ROOT / "examples" / "apps" / "launch.toml")


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_applications(app: CompileObject, name: str, target: str, level: str) -> None:
    case = f"{target} {name} {level}"
    counted("examples/apps, -O0 and -O3", case, load_object(app(name, target, level)), APPS[name])


KERNELS = ROOT / "tests" / "emulator" / "kernels"
N = 100


def buffer(kind: str, count: int, fill: str = "random") -> dict[str, object]:
    return {"buffer": kind, "count": count, "fill": fill}


OF_EMULATOR = {
    "vector_add": ("plain", (buffer("float32", N), buffer("float32", N), buffer("float32", N, "zero"), N)),
    "collatz": ("plain", (buffer("uint32", N, "arange"), buffer("uint32", N, "zero"), N)),
    "call_function": ("plain", (buffer("int32", N), buffer("int32", N), buffer("int32", N, "zero"), N)),
    "integers": ("plain", (buffer("int32", N), buffer("int32", N), buffer("uint32", 24 * N, "zero"), N)),
    "reduction": ("groups", (buffer("float32", N), buffer("float32", 2, "zero"), N)),
    "lanes": ("groups", (buffer("int32", N), buffer("int32", N, "zero"), N)),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", OF_EMULATOR)
def test_kernels_of_the_emulator(compile_object: CompileObject, name: str, target: str, level: str) -> None:
    file, arguments = OF_EMULATOR[name]
    object = load_object(compile_object(KERNELS / f"{file}.hip", target, f"-I{KERNELS}", "-ffp-contract=off", level))
    case = f"{target} {name} {level}"
    plan = LaunchPlan(name, (1, 1, 1), (128, 1, 1), arguments)
    assert counted("kernels of the emulator's tests", case, object, plan)["static"]


MATRIX = ROOT / "tests" / "hazards" / "matrix.hip"
FLOATS = {"buffer": "float32", "count": 256, "fill": "random"}
RESULTS = {"buffer": "float32", "count": 1024}
MATRIX_PLANS = {
    "small": LaunchPlan("small", (1, 1, 1), (64, 1, 1), (FLOATS, RESULTS)),
    "large": LaunchPlan("large", (1, 1, 1), (64, 1, 1), (FLOATS, RESULTS, 3)),
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("name", MATRIX_PLANS)
def test_matrix_kernels(compile_object: CompileObject, name: str, target: str, level: str) -> None:
    case = f"{target} {name} {level}"
    object = load_object(compile_object(MATRIX, target, level))
    counted("matrix kernels by clang 22", case, object, MATRIX_PLANS[name])


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", FAMILIES)
def test_random_control_flow(target: str) -> None:
    for seed in range(2000, 2012) if EVERYTHING else sample(range(2000, 2012), 6):
        object = random_kernel(seed, target, calls=seed % 2 == 0, saturated=seed % 5 == 0)
        if check_hazards(lift(object, "k"), unneeded=False).findings:
            continue  # the generator keeps nothing apart, and GFX12 has hazards between scalar instructions
        size = object.kernels["k"].wave_size
        plan = LaunchPlan("k", (WAVES, 1, 1), (size, 1, 1), ({"buffer": "uint32", "count": WAVES * size},))
        counted("random control flow", f"{target} {seed}", object, plan)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"])
def test_assembly_with_exact_wait_states(target: str) -> None:
    """Random vector and matrix instructions, kept apart by as many wait states as the table asks for and no more: all
    that is weakened by one is found."""
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64},))
    judged = 0
    for seed in range(8) if EVERYTHING else sample(range(8), 4):
        seen = counted("assembly with exact wait states", f"{target} {seed}", padded_kernel(target, seed), plan)
        assert seen["static"] == seen["dynamic"] == seen["mutants"]
        judged += seen["mutants"]
    assert judged


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "level", "kernel", "every"),
    [("gfx90a", "-O3", "numbers", 5), ("gfx942", "-O0", "numbers", 16), ("gfx1201", "-O3", "waves", 40)],
)
def test_a_mutant_is_the_same_lifted_and_loaded_anew(
    compile_object: CompileObject, target: str, level: str, kernel: str, every: int
) -> None:
    """A mutant patched into a lifted and loaded kernel is judged like one made from its bytes."""
    object = load_object(compile_object(HIP, target, level, clang="clang-22"))
    of = Study(object, PLANS[kernel])
    flagged = 0
    for mutant in list(mutants(object, of.lifted))[::every]:
        static, _, _ = of.static(mutant)
        assert static.findings == Static.of(lift(mutant.object(object), kernel)).findings
        after, alone = of.launched(mutant), Launches(load_object(mutant.object(object)), PLANS[kernel]).original
        assert after == alone
        flagged += static.flagged
    assert flagged


def test_what_was_counted_is_not_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_study, "FOLDER_OF_RATES", str(tmp_path / "rates"))
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64},))
    object = padded_kernel("gfx90a", 0)
    seen = mutation_study.counted("some", "gfx90a 0", object, plan)
    assert seen["mutants"]
    monkeypatch.setattr(mutation_study, "study", lambda *_: pytest.fail("judged again"))
    assert mutation_study.counted("some", "gfx90a 0", object, plan) == seen
