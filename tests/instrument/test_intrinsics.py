"""Intrinsics: the built-in ones' records, and those that a package adds by entry points."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from luthier import Intrinsic, Tool, ToolModule, open_device, patch_object
from luthier.cache import provenance
from luthier.errors import HookError, ToolError
from luthier.isa.targets import TargetId
from luthier.objects import load_object
from luthier.payload import RegisterArgument, Template
from luthier.payload import cache as payload_cache
from luthier.payload.cache import template_for
from luthier.payload.intrinsics import BUILT_IN
from luthier.payload.registry import find_intrinsics, installed_names
from luthier.run.patching import Patcher
from luthier.tool import ToolGroup
from luthier.tool.task import InstrumentationTask
from planted import plant

from luthier_build.cli.doctor import DoctorLine, examine
from luthier_build.compile import compile_application

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests/packages/intrinsics"
TARGETS = ["gfx90a", "gfx1201"]

HOOKS = f"""
#include "{PACKAGE}/extra_intrinsics/include/extra/intrinsics.h"
__device__ uint32_t sum, lanes;
__device__ unsigned long long wide;
LUTHIER_HOOK_ANNOTATE turn(uint32_t value) {{
  atomicAdd(&sum, extra::rotate<uint32_t>(value, 8));
  atomicAdd(&wide, extra::rotate<uint64_t>(value, 40));
  lanes = extra::bits::wave_size();
}}
namespace extra {{
template <typename T> LUTHIER_INTRINSIC_ANNOTATE T absent(T value) {{ return luthier::opaque<T>(value); }}
}}
LUTHIER_HOOK_ANNOTATE unknown(uint32_t value) {{ sum = extra::absent(value); }}
LUTHIER_HOOK_ANNOTATE other_type(uint32_t value) {{ sum = extra::rotate<uint8_t>(value, 3); }}
LUTHIER_HOOK_ANNOTATE unused(uint32_t value) {{ if (value * 0) sum = extra::absent(value); }}
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", folder]
    done = subprocess.run([*pip, PACKAGE], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def package(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.delitem(sys.modules, "extra_intrinsics", raising=False)


def other_package(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: str = "") -> None:
    """One more package on the path, with an entry point."""
    plant(folder, monkeypatch, "luthier.intrinsics", line, code)


def template(module: ToolModule, hook: str, target: str = "gfx90a") -> Template:
    parsed = TargetId.parse(target)
    template_for.cache_clear()
    return template_for(module.hook(hook), (RegisterArgument(False),), parsed, parsed.target.default_wave_size)


def test_the_header_declares_what_the_records_describe() -> None:
    header = (ROOT / "compiler_plugin/include/luthier/luthier.h").read_text()
    declared = re.findall(r"^(?:template <typename T>\s+)?LUTHIER_INTRINSIC_ANNOTATE ([^{]*?)\(", header, re.MULTILINE)
    names = {re.sub(r"detail::EnableIf<.*?>::Type", "", text).split()[-1] for text in declared}
    assert {f"luthier::{name}" for name in names} == set(BUILT_IN)
    assert all(record.doc and record.signature.startswith(name[9:]) for name, record in BUILT_IN.items())


def test_the_document_lists_them() -> None:
    text = (ROOT / "docs/hooks.md").read_text()
    rows = re.findall(r"^\| `luthier::(.*?)` \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(record.signature, record.doc) for record in BUILT_IN.values()]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_package_adds_intrinsics(module: ToolModule, package: None, target: str, tmp_path: Path) -> None:
    """Two of them, in a hook at each store of a real kernel: what the hook gathers is what NumPy says."""
    application = compile_application(ROOT / "examples/apps/vector_add.hip", target, tmp_path / "app.hsaco")

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic in ("global_store_dword", "global_store_b32"):
                task.insert_hook_before(instruction, module.turn, task.operand(instruction, "vdata"))

    patched = patch_object(load_object(application), instrument)
    assert sum(kernel.sites for kernel in patched.report.kernels) == 1
    loaded = open_device(f"emu:{target}").load(patched.data)
    a, b, c = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32), np.zeros(1000, np.float32)
    loaded.kernel("vector_add").launch(a, b, c, 1000, grid=4, block=256)
    bits = (a + b).view(np.uint32).astype(np.uint64)
    assert np.array_equal(c, a + b)
    assert loaded.variable("sum").read(int) == int(((bits << 8 | bits >> 24) & 0xFFFFFFFF).sum()) & 0xFFFFFFFF
    turned = sum((int(x) << 40 & 2**64 - 1) | int(x) >> 24 for x in bits)
    assert loaded.variable("wide").read(int) == turned & 2**64 - 1
    assert loaded.variable("lanes").read(int) == TargetId.parse(target).target.default_wave_size


def test_only_what_a_hook_uses_is_imported(module: ToolModule, package: None) -> None:
    assert {"extra::rotate", "extra::bits::wave_size"} <= set(installed_names())
    assert "extra_intrinsics" not in sys.modules
    assert find_intrinsics(["extra::rotate"])["extra::rotate"].package == "extra-intrinsics"
    assert "extra_intrinsics" in sys.modules


def test_what_is_kept_goes_when_the_package_changes(
    module: ToolModule, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the hooks that LLVM compiled and the patched kernels."""
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(tmp_path / "cache"))
    site = tmp_path / "site"
    shutil.copytree(installed, site, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(site))
    application = compile_application(ROOT / "examples/apps/vector_add.hip", "gfx90a", tmp_path / "app.hsaco")
    compiled: list[object] = []
    generate = payload_cache.generate
    monkeypatch.setattr(payload_cache, "generate", lambda *given: compiled.append(given) or generate(*given))

    class Turns(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            point = next(one for one in task.instructions if one.mnemonic == "global_store_dword")
            task.insert_hook_before(point, module.turn, task.operand(point, "vdata"))

    def patch() -> tuple[bool, int]:
        """As a new process would: whether it was kept, and how many hooks were compiled."""
        importlib.invalidate_caches()
        sys.modules.pop("extra_intrinsics", None)
        template_for.cache_clear()
        provenance.package_provenance.cache_clear()
        monkeypatch.setattr(provenance, "_BEGAN", time.time_ns())
        compiled.clear()
        patched = Patcher(ToolGroup.of(Turns())).patch(load_object(application), "vector_add")
        assert patched.reason == ""
        return patched.kept, len(compiled)

    assert patch() == (False, 1)
    assert patch() == (True, 0)
    source = site / "extra_intrinsics/__init__.py"
    source.write_text(source.read_text().replace("  ret i32 %result", "  ret i32 %result ; it"))
    assert patch() == (False, 1)
    assert patch() == (True, 0)
    source.write_text(f"{source.read_text()}\nimport msgpack\n")  # unknown to the tool
    assert patch() == (False, 1)
    assert patch() == (False, 1)


def test_without_the_package_its_intrinsics_are_unknown(module: ToolModule) -> None:
    with pytest.raises(HookError, match=r"unknown intrinsic extra::(rotate|bits::wave_size)"):
        template(module, "turn")


def test_undefined_intrinsics(module: ToolModule, package: None) -> None:
    with pytest.raises(HookError, match=r"unknown intrinsic extra::absent; known: .*luthier::readReg"):
        template(module, "unknown")
    message = r"extra::rotate of extra-intrinsics has no definition for \(i8, i32\) -> i8"
    with pytest.raises(HookError, match=message):
        template(module, "other_type")
    assert template(module, "unused").inputs == ()


@pytest.mark.parametrize(
    ("line", "owners"),
    [
        ("extra.rotate = other_one:X", ("extra-intrinsics", "other-one")),
        ("luthier.readReg = other_one:X", ("luthier", "other-one")),
    ],
)
def test_two_that_clash_name_both_packages(
    module: ToolModule, package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, owners: tuple[str]
) -> None:
    other_package(tmp_path, monkeypatch, line)
    name = line.partition(" ")[0].replace(".", "::")
    with pytest.raises(ToolError, match=f"intrinsic {name} is defined by several packages") as caught:
        find_intrinsics([name])
    assert all(owner in caught.value.message for owner in owners)
    if "rotate" in line:
        with pytest.raises(ToolError, match="several packages"):
            template(module, "turn")


def test_the_doctor_lists_them(package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finding() -> DoctorLine:
        return next(one for one in examine() if one.subject == "intrinsics")

    assert finding().status == "ok"
    assert "luthier::sAtomicAdd" in finding().detail
    assert "extra::rotate (extra-intrinsics)" in finding().detail
    other_package(tmp_path, monkeypatch, "extra.rotate = other_one:X")
    assert finding().status == "missing"
    assert "extra-intrinsics and other-one" in finding().detail or "other-one and extra" in finding().detail


HEAD = "from luthier import Intrinsic\nX = "


@pytest.mark.rows(7)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "absent of other-one .* cannot be imported: ZeroDivisionError"),
        ("X = 3", "other_one:X is not a luthier.Intrinsic"),
        (HEAD + "Intrinsic('extra::other', '', '', definition='')", "has the name extra::other"),
        (HEAD + "Intrinsic('extra::absent', '', '', definition='nonsense')", "cannot be linked as LLVM IR"),
        (HEAD + "Intrinsic('extra::absent', '', '', definition=b'BC')", "cannot be linked as LLVM IR"),
        (HEAD + "Intrinsic('extra::absent', '', '', definition=lambda t, w: 1 / 0)", "cannot be defined: ZeroDivision"),
        (HEAD + "Intrinsic('extra::absent', '', '', lambda c, w: 1 / 0)", "cannot be lowered: ZeroDivision"),
        (HEAD + "Intrinsic('extra::absent', '', '', lambda c, w: ['nonsense'])", "cannot lower its"),
        (HEAD + "Intrinsic('extra::absent', '', '')", "needs exactly one"),
    ],
)
def test_a_package_with_faults(
    module: ToolModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    other_package(tmp_path, monkeypatch, "extra.absent = other_one:X", code)
    with pytest.raises((HookError, ToolError), match=message):
        template(module, "unknown")


BITCODE = """
from llvmlite import binding
from luthier import Intrinsic
def define(target, wave_size):
    assert (target.name, wave_size) == ("gfx90a", 64)
    return binding.parse_assembly('''
      declare i32 @"luthier::readReg.i32.i32"(i32)
      define i32 @"extra::absent.i32.i32"(i32 %value) {
        %seen = call i32 @"luthier::readReg.i32.i32"(i32 261)
        %result = add i32 %value, %seen
        ret i32 %result
      }''').as_bitcode()
X = Intrinsic("extra::absent", "absent(value)", "for tests", definition=define)
"""


def test_bitcode_as_a_definition(module: ToolModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may depend on the target, and use other intrinsics."""
    other_package(tmp_path, monkeypatch, "extra.absent = other_one:X", BITCODE)
    made = template(module, "unknown")
    assert {(taken.source.argument, taken.source.unit) for taken in made.inputs} == {(0, 0), (None, 261)}


def test_a_record_says_how() -> None:
    with pytest.raises(HookError, match="needs exactly one"):
        Intrinsic("a::b", "b()", "")
    with pytest.raises(HookError, match="needs exactly one"):
        Intrinsic("a::b", "b()", "", lower=lambda call, lowering: [], definition="")
