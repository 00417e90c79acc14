"""Counters that reach memory by absolute addresses, which the loader writes into the code."""

from __future__ import annotations

import pytest
from luthier import InstrumentationTask
from luthier.devices import open_device
from luthier.errors import ObjectError
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from test_truth import PLANS, launch


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_code_as_loaded(app, target: str) -> None:
    patched = patch_object(
        load_object(app("vector_add", target)), lambda task: task.count(task.instructions) and None, strict=True
    )
    object = load_object(patched.data)
    cells = object.symbol(patched.counters["vector_add"].symbol)
    assert cells is not None
    assert next(section.name for section in object.sections if section.address == cells.address) == ".luthier.counts"
    low, high = sorted(object.text_relocations, key=lambda entry: entry.offset)
    assert {low.symbol, high.symbol} == {cells.name}
    for base in (0, 0x7FFF_0000_0000, 0xFFFF_F000):
        text = dict(object.text_as_loaded({cells.name: cells.address + base}.get))
        counts = []
        for relocation in (low, high):
            start = max(start for start in text if start <= relocation.offset)
            at = relocation.offset - start
            counts.append(int.from_bytes(text[start][at : at + 4], "little"))
            assert object.read(relocation.offset, 4) != text[start][at : at + 4] or not counts[-1]
        assert counts[0] | counts[1] << 32 == cells.address + base + low.addend
    with pytest.raises(ObjectError, match=r"symbol luthier.counts.vector_add"):
        object.text_as_loaded({}.get)


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_one_object_at_two_places(app, target: str) -> None:
    """Each has cells of its own."""
    object, plan = load_object(app("vector_add", target)), PLANS["vector_add"]
    patched = patch_object(object, lambda task: task.count(task.instructions) and None, strict=True)
    _, _, stats = launch(object, object.data, plan)
    device = open_device(f"emu:{target}")
    modules = [device.load(patched.data) for _ in range(2)]
    for times, module in enumerate(modules, start=1):
        for _ in range(times):
            module.kernel(plan.kernel).launch(*plan.materialise(), grid=plan.grid, block=plan.block)
    counters = patched.counters[plan.kernel]
    for times, module in enumerate(modules, start=1):
        assert counters.read(module).executions.sum() == times * stats.instructions


@pytest.mark.rows(2)
@pytest.mark.parametrize(("target", "most"), [("gfx90a", 7), ("gfx1030", 7), ("gfx1100", 8), ("gfx1201", 7)])
def test_what_a_wave_costs(compile_object, target: str, most: int) -> None:
    """Code without branches has one counter if waves are to be counted, else none: one instruction sets it up, six give
    it to memory, five where one moves to two registers; the boundary, and what gives registers back, have a wait
    each."""
    source = '#include <hip/hip_runtime.h>\nextern "C" __global__ void k(unsigned *out) { out[blockIdx.x] = 3; }'
    object = load_object(compile_object(source, target))
    for given, counters, added in ((True, 0, 0), (False, 1, most)):

        def instrument(task: InstrumentationTask, given: bool = given) -> None:
            task.waves_given = given
            task.count(task.instructions)

        (report,) = patch_object(object, instrument, strict=True).report.kernels
        assert report.counters == counters
        assert report.added_instructions <= added


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_tools_that_count_one_after_the_other(app, target: str) -> None:
    """Each patch of an object has cells of its own: the later one counts what the earlier ones put in, too."""
    object, plan = load_object(app("vector_add", target)), PLANS["vector_add"]
    data, made, runs = object.data, [], []
    for _ in range(3):
        _, _, stats = launch(object, data, plan)
        runs.append(stats.instructions)
        patched = patch_object(
            CodeObject(data), lambda task: task.count(task.instructions) and None, [plan.kernel], strict=True
        )
        data = patched.data
        made.append(patched.counters[plan.kernel])
    assert len({one.symbol for one in made}) == 3
    _, loaded, _ = launch(object, data, plan)
    assert [int(one.read(loaded).executions.sum()) for one in made] == runs
