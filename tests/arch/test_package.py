"""A generation added by a package is listed, decoded, checked, patched and emulated by its own facts."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier.arch import targets
from luthier.arch.targets import TARGETS, generations, target_named
from luthier.cli.main import main
from luthier.emulator import CheckWarning
from luthier.errors import TargetError
from luthier.hazards.wait_states import check_hazards
from luthier.isa import TargetId
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.payload.isolation import end_lasting_child
from luthier.tool import InstrumentationTask

HERE = Path(__file__).parent
NEW, OLD = "gfx1190", "gfx1100"
E_FLAGS = 48


def install(folder: Path, name: str, point: str) -> None:
    """A distribution with an entry point, found in a folder."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[luthier.arch]\n{point}\n")


def forget() -> None:
    targets._all.cache_clear()
    TargetId.parse.cache_clear()
    end_lasting_child()  # it lists the packages that were installed at its query


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install gfx1190_package."""
    folder = tmp_path / "site"
    install(folder, "gfx1190", f"{NEW} = gfx1190_package:PROCESSORS")
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{HERE}")
    forget()
    yield folder
    forget()


def as_new(object: bytes) -> bytes:
    """Return an object for gfx1100 that is marked as gfx1190."""
    assert object[E_FLAGS] == TARGETS[OLD].mach
    data = bytearray(object.replace(OLD.encode(), NEW.encode()))
    data[E_FLAGS] = TARGETS[NEW].mach
    return bytes(data)


def test_it_is_there_only_where_it_is_installed() -> None:
    assert NEW not in list(TARGETS)
    with pytest.raises(TargetError, match=f"unknown target '{NEW}'; known: gfx900, "):
        TargetId.parse(NEW)


def test_facts(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new, old = TARGETS[NEW], TARGETS[OLD]
    assert [*TARGETS][-1] == NEW
    assert generations()["GFX11_9"] is new.parent
    assert (new.major, new.emulated_major, new.waits) == (11, 11, old.waits)
    assert new.vgpr_allocation_granule(32) == 2 * old.vgpr_allocation_granule(32)
    assert new.occupancy(97, 64) < old.occupancy(97, 64)
    assert pickle.loads(pickle.dumps(new)) is new is copy.copy(new) is copy.deepcopy(new)
    assert main(["doctor", "--json"]) in (0, 1)
    (line,) = (one for one in json.loads(capsys.readouterr().out) if one["subject"] == "targets")
    assert line["status"] == "ok"
    assert "gfx1190 (gfx1190)" in line["detail"]


def application(app: Callable[..., Path]) -> CodeObject:
    return load_object(as_new(app("vector_add", OLD).read_bytes()))


def test_it_lists_and_lifts(
    installed: Path, app: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "object"
    file.write_bytes(as_new(app("vector_add", OLD).read_bytes()))
    object, old = load_object(file), load_object(app("vector_add", OLD))
    assert str(object.target) == NEW
    for name in object.kernels:
        assert lift(object, name).code.opcode.tolist() == lift(old, name).code.opcode.tolist()
    for verb in ("objects", "disasm", "lift", "check"):
        assert main([verb, str(file)]) == 0, verb
        assert capsys.readouterr().out
    assert main(["emulator", "coverage", NEW, OLD, "--json"]) == 0
    new, known = json.loads(capsys.readouterr().out)
    assert new | {"target": OLD} == known


HOOK = """
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
"""


def test_it_is_patched_and_runs(
    installed: Path, app: Callable[..., Path], make_module: Callable[..., ToolModule]
) -> None:
    """With a hook of a module for the generic processor that it runs the code of."""
    module = make_module(HOOK, "gfx11-generic")

    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.count)

    object, old = application(app), load_object(app("vector_add", OLD))
    patched, known = (patch_object(one, everywhere, strict=True) for one in (object, old))
    assert load_object(patched.data).target.target is TARGETS[NEW]
    for own, theirs in zip(patched.report.kernels, known.report.kernels, strict=True):
        assert own.added_instructions == theirs.added_instructions > 0
    results = []
    for data, target in ((patched.data, NEW), (known.data, OLD)):
        device = luthier.open_device(f"emu:{target}")
        arrays = [np.arange(256, dtype=np.float32), np.ones(256, np.float32), np.zeros(256, np.float32)]
        loaded = device.load(load_object(data))
        loaded.kernel("vector_add").launch(*arrays, np.uint32(256), grid=2, block=128)
        count = int.from_bytes(loaded.variable("counter").read(), "little")
        results.append((count, arrays[2].tolist()))
    (count, sums), known_result = results
    assert (count, sums) == known_result
    assert count > 0
    assert sums == [float(number + 1) for number in range(256)]


BODY = "v_rcp_f32_e32 v1, v2; {between}; v_add_f32_e32 v3, v1, v1"


@pytest.mark.parametrize(
    ("known", "target", "wrong"), [(2, NEW, True), (3, NEW, False), (3, OLD, True), (6, OLD, False)]
)
def test_its_hazards_are_its_own(installed: Path, known: int, target: str, wrong: bool) -> None:
    from wait_kernels import kernel

    object = kernel(OLD, BODY.format(between="; ".join(["v_nop"] * known)))
    if target == NEW:
        object = load_object(as_new(object.data))
    hazards = {one.hazard for one in check_hazards(lift(object, "k"), unneeded=False).findings}
    device = luthier.open_device(f"emu:{target}", check="hazards", threads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(object).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=32)
    assert ({one.rule for one in device.findings}, hazards) == 2 * (
        ({"transcendental operation, VALU reads its result"} if wrong else set()),
    )


ADDED = """
from luthier.arch.generation import Generation
from luthier.arch.gfx11 import GFX11
from luthier.arch.target import Target
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PROCESSORS = (Target(parent=GFX11, name='gfx1190', mach=0xE1),)", "there are two processors called gfx1190"),
        ("PROCESSORS = (Target(parent=GFX11, name='gfx1191', mach=0x41),)", "have the same EF_AMDGPU_MACH 0x41"),
        (
            "PROCESSORS = (Target(parent=Generation(parent=GFX11, generation='GFX12'), name='gfx1191', mach=0xE1),)",
            "redefines generation GFX12",
        ),
        ("PROCESSORS = 'gfx1190'", "must be a sequence of Target"),
        ("PROCESSORS = (GFX11,)", "must be a sequence of Target"),
        ("raise OSError('no such disk')", "no such disk"),
    ],
)
def test_what_clashes_or_cannot_be_loaded_is_an_error(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    other = tmp_path / "other"
    install(other, "other", "other = other_generations:PROCESSORS")
    (other / "other_generations.py").write_text(ADDED + text)
    monkeypatch.syspath_prepend(str(other))
    monkeypatch.delitem(sys.modules, "other_generations", raising=False)
    importlib.invalidate_caches()
    forget()
    with pytest.raises(TargetError, match=rf"entry point .* of luthier\.arch: .*{message}"):
        target_named(NEW)
    assert target_named(OLD) is TARGETS[OLD]
