"""Patched kernels that are kept from run to run, when a tool is built again meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule, load_object
from luthier.cache.store import Store
from luthier.errors import UnfinishedError
from luthier.payload import codegen
from luthier.run import patching
from luthier.run.patching import Patcher
from luthier.support.losses import forget_losses, losses
from luthier.tool import ToolGroup

SOURCE = """
__device__ uint64_t bytes = {};
LUTHIER_HOOK_ANNOTATE add(uint64_t more) {{ atomicAdd((unsigned long long *)&bytes, more); }}
"""


def _patch(module: ToolModule, code: Path):  # type: ignore[no-untyped-def]
    class Adds(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            task.hoist = False
            task.insert_hook_before(next(iter(task.instructions)), module.add, 3)

    return Patcher(ToolGroup.of(Adds())).patch(load_object(code), "vector_add")


def _documented(module: ToolModule, text: str) -> ToolModule:
    """The module, after its source was changed where that changes no code: a comment, a line more."""
    made = ToolModule(module._contents, module.name)
    made.__dict__["variables"] = {
        name: replace(one, documentation=text, location=f"device.hip:{len(text)}:1", type=f"{text}_t")
        for name, one in module.variables.items()
    }
    return made


def test_a_comment_that_changes_leaves_kept_kernels_good(
    make_module, app, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(patching, "patched_store", lambda: Store(tmp_path / "kept"))
    module, code = make_module(SOURCE.format(0), "gfx90a"), app("vector_add", "gfx90a")
    first = _patch(_documented(module, "old"), code)
    again = _patch(_documented(module, "newer"), code)
    assert (first.reason, again.reason) == ("", "")
    assert (first.kept, again.kept) == (False, True)
    assert again.companion.data == first.companion.data
    other = _patch(make_module(SOURCE.format(1), "gfx90a"), code)
    assert not other.kept
    assert other.companion.blocks[0].symbol != first.companion.blocks[0].symbol


def test_what_the_system_ended_is_not_kept(make_module, app, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """A compilation that the out-of-memory killer has ended: the kernel lacks the hook this time, and no other."""
    monkeypatch.setattr(patching, "patched_store", lambda: Store(tmp_path / "kept"))
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "cache"))
    more = "LUTHIER_HOOK_ANNOTATE twice(uint64_t more) { atomicAdd((unsigned long long *)&bytes, 2 * more); }"
    module, code = make_module(SOURCE.format(0) + more, "gfx90a"), app("vector_add", "gfx90a")

    class Both(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            task.hoist = False
            first, second, *_ = task.instructions
            task.insert_hook_before(first, module.add, 5)
            task.insert_hook_before(second, module.twice, 5)

    def patch():  # type: ignore[no-untyped-def]
        return Patcher(ToolGroup.of(Both())).patch(load_object(code), "vector_add")

    real = codegen.in_lasting_child

    def ended(what, *arguments):  # type: ignore[no-untyped-def]
        if "twice" in what:
            raise UnfinishedError(f"{what}: the system ended its compilation: it crashed (SIGKILL)")
        return real(what, *arguments)

    forget_losses()
    with monkeypatch.context() as context:
        context.setattr(codegen, "in_lasting_child", ended)
        first = patch()
    assert [refusal.kind for refusal in first.report.refusals] == ["unfinished"]
    assert [text.partition(":")[0] for text in losses()] == ["hook twice in vector_add"]
    forget_losses()
    second, third = patch(), patch()
    assert (first.kept, second.kept, third.kept) == (False, False, True)
    assert [made.report.refusals for made in (second, third)] == [(), ()]
    assert losses() == ()
