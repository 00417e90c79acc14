"""The tool that checks what a program launches: it says what `luthier check` says, and finds waits taken out."""

from __future__ import annotations

import re
from typing import Any

import pytest
from luthier import lift, load_object, open_device, patch_object, reported
from luthier.cli.main import main
from luthier.hazards.wait_counters import check_waits
from luthier.objects import CodeObject
from mutation import mutants

from .conftest import TARGETS


def tables(tool: Any, object: CodeObject) -> dict[str, list[Any]]:
    """Return the tool's report of an object's kernels."""
    patched = patch_object(object, tool.instrument, strict=True)
    assert all(kernel.added_instructions == 0 for kernel in patched.report.kernels)
    module = open_device(f"emu:{object.target}").load(patched.data)
    return {table.title.partition(":")[0]: list(table.rows) for table in reported(tool, module, patched)}


@pytest.mark.rows
@pytest.mark.parametrize("target", TARGETS)
def test_waits_taken_out_are_found(app: Any, shipped: Any, capfd: pytest.CaptureFixture[str], target: str) -> None:
    """Each wait of a kernel taken out; findings, and what is counted, are those of the check itself."""
    path = app("reduction", target)
    object = load_object(path)
    lifted = lift(object, "reduction")
    as_it_is = tables(shipped("wait_check", unneeded=True), object)
    assert as_it_is["findings"] == []
    ((kernel, target_name, instructions, findings, _),) = as_it_is["checked"]
    assert (kernel, target_name, findings) == ("reduction", str(object.target), 0)
    assert instructions == sum(one.block >= 0 for one in lifted.instructions)
    assert main(["check", str(path), "--unneeded"]) == 0
    reasons = re.findall(r": not needed: reduction: (.*)", capfd.readouterr().out)
    assert [text for _, text in as_it_is["not needed"]] == reasons

    caught = 0
    for mutant in mutants(object, lifted):
        if mutant.kind != "wait" or not mutant.removed:
            continue
        changed = CodeObject(mutant.object(object))
        expected = check_waits(lift(changed, "reduction"), unneeded=False).findings
        seen = tables(shipped("wait_check", hazards=False, top=0), changed)
        texts = [text for _, text in seen.get("findings", [])]
        assert [f"reduction: {text}" for text in texts] == list(dict.fromkeys(map(str, expected)))
        caught += bool(texts)
    assert caught
