"""Patched kernels that are kept from run to run, when a tool is built again meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule, load_object
from luthier.cache.store import Store
from luthier.run import patching
from luthier.run.patching import Patcher
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
