"""Runs the cases: assembly in (case_files.py) or IR in, text out. A folder for each command.

patch: hooks are spliced into the kernel `k`, and the listing of the patched code comes out (patched_listing.py). A file
begins with the HIP source of its hooks; those for patching again follow the line ``// again``. ``before TEXT: hook;
hook(argument, …)`` and ``after TEXT: …`` insert them at every instruction whose text begins so, and ``before every: …``
at all that control reaches; an argument is a number or a register. Settings:

- targets: processors, ``gfx1100/64`` with a wave size; vgprs, sgprs, agprs, workgroup, descriptor: of the kernel;
- launch: work-groups and lanes of each (1 64);
- variables: ``name=value …`` of tool variables after the launch; a value may use `waves`, `lanes`, and
  the numbers of `instructions` that the original and, for hooks of "again", the `patched` kernel executes;
- show: pattern of the spliced instructions to list, by default all;
- again before TEXT, again variables: the same for hooks that are inserted into the patched kernel;
- listing: "no" where the run proves enough;
- emulated: "no" where the emulated device does not have the target, and the listing is all there is to compare;
- fails: why nothing at all can be spliced in; without it, that is a failure.

Every case also runs on the emulated device. The buffer must be that of the original, or that of ``as if``, and the
variables must have their values, so a blessed listing cannot hide a fault.

lift: the listing of the lifted kernel, or the error. ``show: instructions registers`` says what the listing has.

check: the findings of static checks in a kernel of one line. The file's name begins with the check. The findings of
hazards.test also appear while the kernel runs. operations: the class of the first instruction, and its floating-point
operations. effects: the registers that it reads, writes, and writes only in part or not always.

spliced: what a kernel of one line has more after hooks and edits are spliced in where marks say (spliced_lines.py), of
the instructions that the file's ``# Shows: pattern`` matches. With ``# Shows before: number``, also as many of the
patched kernel's instructions right before the one that follows a mark. The patched kernel must not have a hazard or a
missing wait that the original has not. The original has none, unless the file says ``# Original has hazards``.

plugin: every ``; RUN:`` line of an .ll file is a shell command, as in LLVM's own tests. ``%s`` is the file, ``%t`` a
scratch file, ``%plugin`` the plugin, ``%opt`` an opt with the plugin and the option that clang gives it for non-RDC
HIP, ``%bare-opt`` an opt with the plugin alone, ``%manifest`` a printer of the manifest in the bitcode it reads.
``; REQUIRES: llvm>=N`` skips older releases.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from assembled_cases import assemble, run
from case_files import Case, CaseFiles, Line, line_cases
from llvm_releases import MANIFEST_PRINTER, Release
from luthier.devices import open_device
from luthier.emulator import CheckWarning
from luthier.errors import LiftError, LuthierError
from luthier.hazards.wait_counters import check_order, check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.isa import Isa
from luthier.isa.registers import AGPRS, VGPRS, UnitSet, mask_of
from luthier.isa.targets import target_named
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.allocation import unallocated_memory, unallocated_registers
from luthier.lifting.instructions.effects import Columns, EffectTable
from luthier.lifting.instructions.semantics import LaneChange
from luthier.lifting.listing import as_text
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from pair_findings import distance
from patched_listing import Patched
from spliced_lines import added, arguments, inserting, marked, right_before
from wait_kernels import kernel

PATCH, LIFT = CaseFiles("patch"), CaseFiles("lift")
PLUGIN = sorted((Path(__file__).parent / "plugin").glob("*.ll"))
MakeModule = Callable[..., ToolModule]


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--bless", default=False))


def processor(target: str) -> tuple[str, int]:
    """Return the processor and the wave size of ``gfx1100/64`` or ``gfx1100``."""
    name, _, wave = target.partition("/")
    return name, int(wave or target_named(name).default_wave_size)


def code_object(case: Case, target: str, source: str, *, prologue: str = "  begin\n", **numbers: int) -> CodeObject:
    """Return the code object of a case's kernel, with these numbers of registers unless the case has its own."""
    name, wave = processor(target)
    kernel = ("vgprs", "sgprs", "agprs", "workgroup")
    numbers |= {key: int(value) for key, value in case.settings.items() if key in kernel}
    descriptor = case.settings.get("descriptor", "")
    return assemble(name, source, wave, **numbers, descriptor=descriptor, prologue=prologue)


# patch


def insert(task: InstrumentationTask, case: Case, module: ToolModule, which: str = "") -> None:
    """Insert hooks where the case's settings say; `which` precedes the names of these settings."""
    for key, hooks in case.settings.items():
        place, _, text = key.removeprefix(which).partition(" ")
        if not key.startswith(which) or place not in ("before", "after"):
            continue
        points = [point for point in task.instructions if text == "every" or point.text.startswith(text)]
        assert points, f"no instruction {text}"
        insert_hook = task.insert_hook_before if place == "before" else task.insert_hook_after
        for point in points:
            for hook in hooks.split("; "):
                name, given = re.fullmatch(r"(\w+)(?:\((.*)\))?", hook).groups()  # type: ignore[union-attr]
                insert_hook(point, module.hook(name), *arguments(given))


def without_paths(text: str) -> str:
    """Return a message without the folder of the hooks' source."""
    return re.sub(r"\S*/(?=device\.hip)", "", text)


@pytest.mark.rows(20)
@pytest.mark.parametrize(("case", "target"), PATCH.parameters())
def test_patch(case: Case, target: str, make_module: MakeModule, bless: bool) -> None:
    names = sorted({processor(name)[0] for other in PATCH.cases if other.path == case.path for name in other.targets})
    module, again = (make_module(source, *names) for source in (case.shared + "// again\n").split("// again\n")[:2])
    object = code_object(case, target, case.source)
    try:
        patched = Patched(object, "k", lambda task: insert(task, case, module))
    except LuthierError as problem:
        if "fails" not in case.settings:
            raise
        PATCH.check(case, target, f"error: {without_paths(problem.message)}", bless=bless)
        return
    if case.settings.get("emulated") != "no":
        check_run(case, target, object, patched, again)
    if case.settings.get("listing") == "no":
        assert not patched.report.refusals
    else:
        PATCH.check(case, target, without_paths(patched.text(case.settings.get("show", ""))), bless=bless)


def check_run(case: Case, target: str, object: CodeObject, patched: Patched, again: ToolModule) -> None:
    """Check that the patched kernel does what the original does, or that of "as if", and the hooks what they should."""
    name, wave = processor(target)
    groups, lanes = map(int, case.settings.get("launch", "1 64").split())
    model = code_object(case, target, case.as_if) if case.as_if else object
    expected, _, instructions = run(name, model.data, groups=groups, lanes=lanes)
    assert expected.any()
    known = {"waves": groups * -(-lanes // wave), "lanes": groups * lanes, "wide": wave == 64}
    known["instructions"] = instructions

    def check(data: bytes, key: str) -> int:
        values = dict(pair.split("=") for pair in case.settings.get(key, "").split())
        buffer, variables, executed = run(name, data, groups=groups, lanes=lanes, variables=values)
        np.testing.assert_array_equal(buffer, expected)
        assert variables == {key: eval(value, {}, known) for key, value in values.items()}
        return executed

    known["patched"] = check(patched.data, "variables")
    if "again variables" in case.settings:
        once = load_object(patched.data)
        twice = patch_object(once, lambda task: insert(task, case, again, "again "), ["k"], strict=True)
        check(twice.data, "again variables")


# lift


@pytest.mark.rows(13)
@pytest.mark.parametrize(("case", "target"), LIFT.parameters())
def test_lift(case: Case, target: str, bless: bool) -> None:
    object = code_object(case, target, case.source, prologue="", sgprs=96)
    show = case.settings.get("show", "registers").split()
    try:
        lines = as_text(lift(object, "k"), instructions="instructions" in show, registers="registers" in show)
        text = re.sub(r"^(kernel k: )\w+, wave\d+, ", r"\1", "\n".join(lines))
    except LiftError as problem:
        text = f"error: {problem.message} at {problem.offset or 0:#x}"
    LIFT.check(case, target, text, bless=bless)


# check


def waits(lifted: LiftedRepresentation) -> list[str]:
    report = check_waits(lifted)
    texts = [f"{use.access} {', '.join(use.registers.names())} {use.counter}({use.enough})" for use in report.findings]
    return texts + [f"{len(report.unneeded)} unneeded"] * bool(report.unneeded)


def hazards(lifted: LiftedRepresentation) -> list[str]:
    report = check_hazards(lifted)
    texts = [
        (
            f"{finding.hazard}: no wait states help"
            if finding.needed is None
            else f"{finding.distance} of {finding.needed} wait states"
        )
        + (f" on {' and '.join(finding.only_on)} only" if finding.only_on else "")
        for finding in report.findings
    ]
    texts += [f"possible {', '.join(finding.registers.names())}" for finding in report.possible]
    return texts + [f"s_nop: {nop.needed} of {nop.states} needed" for nop in report.unneeded]


def order(lifted: LiftedRepresentation) -> list[str]:
    return [str(finding.enough) for finding in check_order(lifted)]


def unallocated(lifted: LiftedRepresentation) -> list[str]:
    memory = [(one, re.search(r"byte \d+", one.shortage)) for one in unallocated_memory(lifted)]
    texts = ["possibly " * bool(one.only_if) + (byte[0] if byte else "any byte") for one, byte in memory]
    return [str(one.register) for one in unallocated_registers(lifted)] + texts


def operations(lifted: LiftedRepresentation) -> list[str]:
    first = next(iter(lifted.instructions))
    count = sum(each.count for each in first.operations)
    return [first.operation_class] + ["float"] * first.is_float + [f"{count} operations"] * bool(count)


CHECKS = {"waits": waits, "hazards": hazards, "order": order, "unallocated": unallocated, "operations": operations}


def effects(line: Line) -> str:
    """Return the effects of one instruction, which need not be one that lifting allows in a kernel."""
    name, _, wave = line.target.partition("/")
    isa = Isa.of(name, int(wave) if wave else None)
    columns = Columns(isa.decode(isa.assemble(line.body).instructions.code))
    table = EffectTable(isa, isa.wave_size, mask_of(VGPRS[:256]))
    effect = table.of(columns, 0)
    vectors = mask_of((*VGPRS, *AGPRS))
    units = {
        "reads": effect.reads,
        "perhaps": effect.reads & ~table.certain_reads(columns, 0) & vectors,
        "across lanes": effect.cross_reads & vectors,
        "writes": effect.writes,
        "not always": effect.writes & ~effect.kills,
        "in all lanes": effect.hard_kills & vectors,
    }
    parts = [f"{what} {', '.join(UnitSet(bits).names())}" for what, bits in units.items() if bits]
    return "; ".join(parts) + (f"; lanes {effect.lanes.name}" if effect.lanes != LaneChange.UNCHANGED else "")


def kernel_of(line: Line, body: str | None = None) -> CodeObject:
    """Return the code object of a case, with another body if one is given."""
    name, _, wave = line.target.partition("/")
    text = re.sub(r"func (\w+);", r"=functions= \1: ;", line.body if body is None else body)
    return kernel(name, text, wave_size=int(wave) if wave else None, **line.settings)


@pytest.mark.parametrize("line", line_cases("check"))
def test_check(line: Line, bless: bool) -> None:
    name = line.path.stem.partition("_")[0]
    text = effects(line) if name == "effects" else ", ".join(CHECKS[name](lift(kernel_of(line), "k")))
    line.check(text, bless=bless)


@pytest.mark.parametrize("line", [case for case in line_cases("check", "hazards") if "scc1" not in case.values[0].body])
def test_hazards_while_a_kernel_runs(line: Line) -> None:
    device = open_device(f"emu:{line.target}", check=["hazards", "waits"])
    object = kernel_of(line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(object.data).kernel("k").launch(np.zeros(64, np.uint32), grid=2, block=128)
    findings = check_hazards(lift(object, "k")).findings
    assert [distance(finding) for finding in device.findings] == [(one.distance, one.needed) for one in findings]
    assert [(finding.offset, finding.other and finding.other.offset) for finding in device.findings] == [
        (finding.consumer.address, finding.producer and finding.producer.address) for finding in findings
    ]
    assert all(finding.group == 0 and finding.check == "hazards" for finding in device.findings)


# spliced


@pytest.mark.parametrize("line", line_cases("spliced"))
def test_spliced(line: Line, make_module: MakeModule, bless: bool) -> None:
    names = {row.values[0].target.partition("/")[0] for row in line_cases("spliced", line.path.stem)}
    hooks = line.path.with_suffix(".hip")
    module = make_module(hooks.read_text(), *sorted(names), both_wave_sizes=True) if hooks.exists() else None
    body, marks = marked(line.body)
    object = kernel_of(line, body)
    patched = patch_object(object, inserting(object, marks, module), ["k"], strict=True)
    before, after = lift(object, "k"), lift(load_object(patched.data), "k")
    headers = dict(
        re.findall("^# (Original has hazards|Shows before|Shows)(?:: (.*))?$", line.path.read_text(), re.MULTILINE)
    )
    known = missing(before)
    assert not known or "Original has hazards" in headers, known
    assert not missing(after) - known
    shown = added(before, after, headers["Shows"])
    if "Shows before" in headers:
        shown += f"; last: {right_before(object, before, after, marks, int(headers['Shows before']))}"
    line.check(shown, bless=bless)


def missing(lifted: LiftedRepresentation) -> Counter[str]:
    """Return how often each hazard and each missing wait occurs, without the addresses and distances."""
    hazards = check_hazards(lifted, unneeded=False).findings
    waits = check_waits(lifted, unneeded=False).findings
    return Counter(f"{one.hazard}: {one.consumer.text}, {one.registers}" for one in hazards) + Counter(
        f"{one.counter}: {one.consumer.text} {one.access} {one.registers}" for one in waits
    )


# plugin


@pytest.mark.rows(7)
@pytest.mark.parametrize("case", PLUGIN, ids=lambda case: case.stem)
def test_plugin(case: Path, release: Release, tmp_path: Path) -> None:
    text = case.read_text().replace("\\\n; RUN:", "")
    required = re.search(r"^; REQUIRES: llvm>=(\d+)$", text, re.MULTILINE)
    if required and release.toolchain.llvm_major < int(required[1]):
        pytest.skip(f"needs LLVM {required[1]}")
    checker = shutil.which("FileCheck-22") or "/usr/lib/llvm-22/bin/FileCheck"
    if not Path(checker).exists():
        pytest.skip("no FileCheck: apt install llvm-22-tools")
    bare = f"opt -load-pass-plugin={release.plugin}"
    substitutions = {
        "%bare-opt": bare,
        "%opt": f"{bare} -amdgpu-internalize-symbols",
        "%plugin": str(release.plugin),
        "%manifest": shlex.join([sys.executable, str(MANIFEST_PRINTER)]),
        "%t": str(tmp_path / "scratch"),
        "%s": str(case),
    }
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("FileCheck", "not"):  # packaged for the newest release only
        (tools / name).symlink_to(Path(checker).with_name(name))
    environment = {**os.environ, "PATH": f"{tools}:{release.bin}:{os.environ['PATH']}"}
    lines = re.findall(r"^; RUN: (.*)$", text, re.MULTILINE)
    assert lines, "no RUN line"
    for line in lines:
        command = re.sub("|".join(substitutions), lambda match: substitutions[match[0]], line)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
