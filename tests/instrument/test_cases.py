"""Text in, text out (../support/text_cases.py): assembly and hooks in, the patched kernel's listing out.

A file begins with the HIP source of the hooks that its cases use. Settings of a case say where they go: ``before TEXT:
hook; hook(argument, …)`` and ``after TEXT: …`` mean every instruction whose text begins so, and ``before every: …`` all
that control reaches; an argument is a number or a register. Further settings:

- targets: processors, ``gfx1100/64`` with a wave size; vgprs, sgprs, agprs, workgroup, descriptor: of the kernel;
- launch: work-groups and lanes of each (1 64);
- variables: ``name=value …`` of tool variables after the launch; a value may use `waves` and `lanes`;
- emulated: "no" where the emulated device does not have the target, and the listing is all there is to compare;
- fails: why nothing at all can be spliced in; without it, that is a fault.

Every case also runs on the emulated device, where the buffer must be the original's, or that of the kernel under
``--- : as if``, which does without hooks what they are to do, and the variables must have their values: expectations
that the tool rewrote cannot hide a fault there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from case_kernels import assemble, run
from luthier.errors import LuthierError
from luthier.isa.targets import target_named
from luthier.module import ToolModule
from luthier.objects import CodeObject
from luthier.tool.task import HookArgument, InstrumentationTask, reg
from patched_listing import Patched
from text_cases import Case, CaseFiles

CASES = CaseFiles(Path(__file__).parent / "cases")
MakeModule = Callable[..., ToolModule]


def argument(text: str) -> HookArgument:
    """A number or a register."""
    for number in (lambda text: int(text, 0), float):
        try:
            return number(text)
        except ValueError:
            pass
    return reg(text)


def placed_hooks(settings: dict[str, str]) -> list[tuple[str, str, list[str]]]:
    """What ``before TEXT: hook; hook(argument, …)`` and ``after TEXT: …`` ask for: place, text, hooks."""
    parted = [(*key.split(" ", 1), hooks.split("; ")) for key, hooks in settings.items() if " " in key]
    return [one for one in parted if one[0] in ("before", "after")]


def insert(task: InstrumentationTask, case: Case, module: ToolModule) -> None:
    """Put the case's hooks where its settings say."""
    for place, text, hooks in placed_hooks(case.settings):
        points = [one for one in task.instructions if text == "every" or one.text.startswith(text)]
        assert points, f"no instruction {text}"
        put = task.insert_hook_before if place == "before" else task.insert_hook_after
        for point in points:
            for hook in hooks:
                name, arguments = re.fullmatch(r"(\w+)(?:\((.*)\))?", hook).groups()  # type: ignore[union-attr]
                given = [argument(one) for one in arguments.split(", ")] if arguments else []
                put(point, module.hook(name), *given)


def without_paths(text: str) -> str:
    """A message without the folder of the hooks' source."""
    return re.sub(r"\S*/(?=device\.hip)", "", text)


def processor(target: str) -> tuple[str, int]:
    """Of ``gfx1100/64`` or ``gfx1100``: the processor and its wave size."""
    name, _, wave = target.partition("/")
    return name, int(wave or target_named(name).default_wave_size)


def code_object(case: Case, target: str, source: str) -> CodeObject:
    """The kernel of a case, from its source or another."""
    name, wave = processor(target)
    numbers = {key: int(case.settings.get(key, default)) for key, default in _KERNEL.items()}
    return assemble(name, source, wave, **numbers, descriptor=case.settings.get("descriptor", ""))


_KERNEL = {"vgprs": "16", "sgprs": "24", "agprs": "0", "workgroup": "64"}


@pytest.mark.worth(12)
@pytest.mark.parametrize(("case", "target"), CASES.parameters())
def test_case(case: Case, target: str, make_module: MakeModule) -> None:
    names = sorted({processor(one)[0] for other in CASES.cases if other.path == case.path for one in other.targets})
    module = make_module(case.shared, *names)
    object = code_object(case, target, case.source)
    try:
        patched = Patched(object, "k", lambda task: insert(task, case, module))
    except LuthierError as problem:
        if "fails" not in case.settings:
            raise
        CASES.check(case, target, f"error: {without_paths(problem.message)}")
        return
    if case.settings.get("emulated") != "no":
        check_run(case, target, object, patched)
    CASES.check(case, target, without_paths(patched.text()))


def check_run(case: Case, target: str, object: CodeObject, patched: Patched) -> None:
    """The patched kernel does what the original does, or the one under "as if", and its hooks what they should."""
    name, wave = processor(target)
    groups, lanes = map(int, case.settings.get("launch", "1 64").split())
    known = {"waves": groups * -(-lanes // wave), "lanes": groups * lanes, "wide": wave == 64}
    wanted = dict(one.split("=") for one in case.settings.get("variables", "").split())
    model = code_object(case, target, case.inputs["as if"]) if "as if" in case.inputs else object
    expected, _ = run(name, model.data, groups=groups, lanes=lanes)
    found, variables = run(name, patched.data, groups=groups, lanes=lanes, variables=wanted)
    assert expected.any()
    np.testing.assert_array_equal(found, expected)
    assert variables == {key: eval(value, {}, known) for key, value in wanted.items()}
