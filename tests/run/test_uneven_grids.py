"""Work-groups at the ends of a grid whose size is not a multiple of theirs are smaller: their waves, too, save live
registers in separate parts of LDS, and they run together with the others."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from commands import run_luthier
from compiling import compiled
from crowded import WIDE, full
from luthier import InstrumentationTask, Tool, ToolModule, patch_object
from luthier.capture import read_capture
from luthier.capture.grid import whole_groups
from luthier.capture.replay import PreparedLaunch
from luthier.emulator.running.worker import WorkerState
from luthier.objects import CodeObject, load_object
from luthier.objects.editor import ObjectEditor
from luthier.tool.task import reg
from rocm_stacks import stack

from .conftest import PROGRAMS, TARGETS, Outcome, RunUnderTools

SHAPES = [  # the work-group; how many whole ones the grid has, and the work-items that are left: in each dimension
    ((160, 1, 1), (2, 1, 1), (77, 0, 0)),
    ((16, 10, 1), (1, 2, 1), (3, 7, 0)),
    ((5, 8, 4), (2, 1, 1), (3, 3, 1)),
    ((1, 3, 53), (2, 1, 1), (0, 1, 51)),
    ((100, 2, 1), (0, 1, 1), (99, 1, 0)),
    ((7, 1, 9), (1, 2, 0), (5, 0, 8)),
]
"""In most of them waves hold parts of several rows."""


def launches() -> list[str]:
    """The program's own launches; dynamic LDS is not a multiple of 4."""
    launches = []
    for number, (block, whole, rest) in enumerate(SHAPES):
        grid = [size * many + more for size, many, more in zip(block, whole, rest, strict=True)]
        launches.append(",".join(["x".join(map(str, block)), "x".join(map(str, grid)), str(1031 * (number % 2))]))
    return launches


class Wide(Tool):
    """A hook that counts lanes at every instruction of a kernel with unknown stack size."""

    name = "wide"

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        task.most_stack = None
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.module.wide, instruction.index % 4, reg("v0"))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_live_registers_in_lds(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    executed: Callable[..., list[tuple[bytes, dict[int, tuple[int, int]]]]],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    module = make_module(WIDE, target)

    object = full(compile_object, target, uneven=True, flags=["-mcode-object-version=4"])  # as old a ROCr loads it
    (report,) = patch_object(object, Wide(module).instrument, strict=True).report.kernels
    assert report.in_lds > 0
    command = [*raw_program(target, "raw_uneven", object=object), *launches()]
    alone = luthier_run(f"emu:{target}", *command)
    lines = alone.out.splitlines()
    assert (alone.code, len(lines)) == (0, len(SHAPES)), alone
    assert all(len(set(values)) > len(values) / 2 for values in map(str.split, lines))
    ran = under_tools(f"emu:{target}", [Wide(module)], *command)
    assert (ran.code, ran.out) == (0, alone.out)
    active = sum(lanes for _, counts in executed(f"emu:{target}", *command) for _, lanes in counts.values())
    assert ("lanes", active) in [(name, int(value)) for _, name, value in ran.variables["wide"]]


LAUNCHES = ("320x1x1,640x1x1,0", "512x1x1,1024x1x1,0", "300x1x1,600x1x1,0")
"""The largest work-group that `small_groups` leaves room for, one that is larger, and the largest it allows."""


def small_groups(compile_object: Callable[..., Path], target: str) -> CodeObject:
    """A kernel that supports work-groups of 512 work-items, but whose metadata allows 300."""
    object = full(compile_object, target, lanes=512, uneven=True, flags=["-mcode-object-version=4"])
    metadata = copy.deepcopy(object.metadata)
    metadata["amdhsa.kernels"][0][".max_flat_workgroup_size"] = 300
    editor = ObjectEditor(object)
    editor.set_metadata(metadata)
    return load_object(editor.finish())


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_larger_groups_than_metadata_allow_run_as_they_are(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    """HIP refuses them; by HSA they run, and hooks have room for registers of the waves of those that are allowed."""
    tool = Wide(make_module(WIDE, target))
    object = small_groups(compile_object, target)
    report = patch_object(object, tool.instrument, strict=True).report
    assert report.kernels[0].in_lds > 0
    command = [*raw_program(target, "raw_uneven", object=object), *LAUNCHES]
    alone = luthier_run(f"emu:{target}", *command)
    assert (alone.code, len(alone.out.splitlines())) == (0, len(LAUNCHES)), alone
    ran = under_tools(f"emu:{target}", [tool], *command)
    assert (ran.code, ran.out) == (0, alone.out)
    assert ran.kernels()["crowded"]["instrumented"] == 2
    assert "launches with more than 320 work-items a work-group run uninstrumented" in ran.err + str(ran.summary)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_larger_groups_of_kernels_patched_on_disk_are_stopped(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    target: str,
) -> None:
    """Nothing else checks their size: a wave without a part of LDS stops before it uses another wave's."""
    patched = patch_object(
        small_groups(compile_object, target), Wide(make_module(WIDE, target)).instrument, strict=True
    )
    command = raw_program(target, "raw_uneven", object=load_object(patched.data))
    ran = luthier_run(f"emu:{target}", *command, LAUNCHES[1])
    assert ran.code != 0
    assert "trap 2" in ran.err
    assert "when the kernel begins" in ran.err


WAITING = [  # the work-group, the grid, how often all work-groups wait, and how many there are
    ("64x1x1,650x1x1,3", 11),
    ("16x8x1,50x20x1,2", 12),
    ("8x8x2,20x20x5,1", 27),
    ("256x1x1,100x1x1,2", 1),
    ("64x1x1,640x1x1,2", 10),
]


@pytest.fixture
def waiting(compile_object: Callable[..., Path]) -> Callable[[str], list[str | Path]]:
    """``waiting(target)``: the command of `raw_grid_barrier`, without its launches."""

    def build(target: str) -> list[str | Path]:
        source = PROGRAMS / "raw_grid_barrier.cpp"
        command = ["g++", "-std=c++17", "-g", source, "-lhsa-runtime64"]
        program = compiled(command, [source, source.with_name("hsa_program.h")], "raw_grid_barrier")
        kernel = PROGRAMS / "raw_grid_barrier_kernel.hip"
        return [program, compile_object(kernel, target, "-g", "-w", "-mcode-object-version=4")]

    return build


@pytest.mark.rows(1)
@pytest.mark.parametrize("words", [["run"], ["sanitize"], ["sanitize", "--check", "race,init,barrier"]], ids=" ".join)
@pytest.mark.parametrize(
    ("target", "release"), [("gfx90a", ""), pytest.param("gfx1100", "6.4", marks=pytest.mark.rocm("6.4"))]
)
def test_all_work_groups_wait_for_each_other(
    waiting: Callable[[str], list[str | Path]], target: str, release: str, words: list[str]
) -> None:
    command = [*words, "--device", f"emu:{target}", "--time-limit", "100", "--", *waiting(target)]
    done = run_luthier(*command, *(launch for launch, _ in WAITING), before=stack(release) if release else [])
    rounds = [int(launch.rpartition(",")[2]) * groups for launch, groups in WAITING]
    assert (done.returncode, done.stdout.splitlines()) == (0, [f"{come} work-groups, 0 wrong" for come in rounds]), done
    assert words == ["run"] or "luthier: 0 findings" in done.stderr


@pytest.mark.parametrize(("launch", "groups"), WAITING[:3])
def test_findings_have_numbers_in_the_whole_grid(
    waiting: Callable[[str], list[str | Path]], tmp_path: Path, launch: str, groups: int
) -> None:
    words = ["sanitize", "--check", "memory", "--device", "emu:gfx90a", "--json", tmp_path / "log"]
    assert run_luthier(*words, "--", *waiting("gfx90a"), f"{launch},16").returncode == 1
    (finding,) = json.loads((tmp_path / "log").read_text())["findings"]
    assert (finding["kind"], finding["group"]) == ("out-of-bounds", groups - 1)


@pytest.fixture
def captured_waiting(waiting: Callable[[str], list[str | Path]], tmp_path: Path) -> Path:
    """A capture of the launch in three dimensions, which waits with other numbers of instructions each time."""
    words = ["capture", "--all-memory", "--device", "emu:gfx90a", "-o", tmp_path / "kept"]
    run_luthier(*words, "--", *waiting("gfx90a"), WAITING[2][0]).check_returncode()
    (file,) = (tmp_path / "kept").iterdir()
    return file


@pytest.mark.parametrize("options", [[], ["--check", "races"], ["--check", "waits"]], ids=" ".join)
def test_their_replay_ends(captured_waiting: Path, options: list[str]) -> None:
    done = run_luthier("replay", *options, captured_waiting)
    assert re.search(": (equal|the bytes are equal)", done.stdout), done


@pytest.mark.parametrize("number", [None, 5])
def test_work_groups_have_their_numbers_in_the_whole_grid(captured_waiting: Path, number: int | None) -> None:
    capture = read_capture(captured_waiting)
    manifest = capture.manifest
    x, y, z = whole_groups(manifest)
    everyone = [(at_x, at_y, at_z) for at_z in range(z) for at_y in range(y) for at_x in range(x)]
    if number is not None:  # parts that are chosen
        manifest = msgspec.structs.replace(manifest, groups=tuple(everyone[::number]))
    seen = set[int]()

    def look(worker: WorkerState) -> bool:
        seen.add(worker.workgroup)
        return len(seen) < len(everyone[::number])

    launch = PreparedLaunch(msgspec.structs.replace(capture, manifest=manifest), manifest.target)
    with launch.memory():
        launch.execute(1, look)
    assert seen == set(range(math.prod((x, y, z)))[::number])
