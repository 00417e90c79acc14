"""`luthier doctor`: report what this machine has and lacks for building and running tools, and how to install it."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from luthier import __version__
from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json
from luthier.cli.progress import awaited
from luthier.errors import BuildError, LuthierError
from luthier.extensions.records import Extensions
from luthier.terminal import say_text

from luthier_build import rocm
from luthier_build.toolchain import Toolchain

_TARGET = "gfx90a"
"""A target that every supported compiler knows."""
_HOOK = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
"""


@dataclass(frozen=True)
class DoctorLine:
    """One line of the report."""

    subject: str
    status: str
    """``ok``; ``missing``: building or running a tool needs it; ``optional``: enables an additional feature."""
    detail: str
    fix: str = ""
    """Remedy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_json_argument(parser, "the report")


def run(args: argparse.Namespace) -> int:
    """Return 1 if something is missing that building or running a tool needs, otherwise 0."""
    findings = []
    for finding in awaited("examining this machine", examine()):
        findings.append(finding)
        if args.json != STANDARD_OUTPUT:
            say_text(f"{finding.status:9} {finding.subject:16} {finding.detail}", flush=True)
            if finding.fix:
                say_text(f"{'':9} {'':16} -> {finding.fix}", flush=True)
    if args.json:
        put_json(args.json, [dataclasses.asdict(finding) for finding in findings])
    return int(any(finding.status == "missing" for finding in findings))


def examine() -> Iterator[DoctorLine]:
    """Yield the lines of the report, each as soon as it is known.

    Building the compiler plugin for the first time takes some seconds.
    """
    yield DoctorLine("luthier", "ok", f"{__version__} on Python {platform.python_version()}, {platform.machine()}")
    yield _attempt("native module", _native, "reinstall luthier; from source it needs llvm-22-dev and a C++ compiler")
    try:
        toolchain = Toolchain.find()
    except LuthierError as problem:
        yield DoctorLine(
            "compiler",
            "missing",
            str(problem),
            "follow the above to write tools; installed tools run without a compiler",
        )
    else:
        yield from _toolchain(toolchain)
    for subject, names in (
        ("targets", _targets),
        ("intrinsics", _intrinsics),
        ("report formats", _formats),
        ("report rules", _rules),
        ("checks", _checks),
    ):
        yield _attempt(subject, names, "remove one of the conflicting packages, or repair the broken one")
    yield from _optional()
    yield _devices()
    yield from _programs()


def _attempt(subject: str, check: Callable[[], str], fix: str, status: str = "missing") -> DoctorLine:
    """Return the line for a check: its result, or its error with the fix."""
    try:
        return DoctorLine(subject, "ok", check())
    except Exception as problem:  # report any failure as a line
        return DoctorLine(subject, status, " ".join(str(problem).split()) or repr(problem), fix)


def _native() -> str:
    from luthier.isa import Isa

    return f"LLVM MC decodes {Isa.of(_TARGET).texts(Isa.of(_TARGET).decode(bytes.fromhex('000081bf')))[0]!r}"


def _targets() -> str:
    from luthier.arch.targets import TARGETS, added

    added_targets = {name: point.package or point.value for name, point in added().items()}
    return ", ".join(f"{name} ({added_targets[name]})" if name in added_targets else name for name in TARGETS)


def _intrinsics() -> str:
    from luthier.payload.intrinsics import BUILT_IN
    from luthier.payload.registry import find_intrinsics, installed_names

    added = find_intrinsics(installed_names())
    return ", ".join([*BUILT_IN, *(f"{name} ({record.package})" for name, record in added.items())])


def _formats() -> str:
    from luthier.report.formats import FORMATS

    return _usable(FORMATS)


def _rules() -> str:
    from luthier.report.rules import RULES

    return _usable(RULES)


def _checks() -> str:
    from luthier.hazards.checks import CHECKS

    return _usable(CHECKS)


def _usable(extensions: Extensions[Any]) -> str:
    """Import all extensions, and return their names."""
    for name in extensions.names():
        extensions.load(name)
    return ", ".join(extensions.names())


def _toolchain(toolchain: Toolchain) -> Iterator[DoctorLine]:
    from luthier_build.plugin import plugin_for

    first_line = toolchain.version.partition("\n")[0]
    yield DoctorLine("compiler", "ok", f"{toolchain.clang}: {first_line} ({toolchain.kind})")
    version = ".".join(str(part) for part in toolchain.hip_version)
    yield DoctorLine("HIP headers", "ok", f"{toolchain.rocm_path}/include/hip, version {version}")
    yield DoctorLine("device library", "ok", str(toolchain.device_library))
    plugin = _attempt(
        "compiler plugin",
        lambda: str(plugin_for(toolchain)),
        f"apt install llvm-{toolchain.llvm_major}-dev g++ (with ROCm: rocm-llvm-dev); is the cache writable?",
    )
    yield plugin
    if plugin.status == "ok":
        yield _attempt("hooks", lambda: _compile_hook(toolchain), "see the compiler's message above")


def _compile_hook(toolchain: Toolchain) -> str:
    from luthier_build.compile import compile_device
    from luthier_build.units import read_contents
    from luthier_build.workspace import build_folder

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "hook.hip").write_text(_HOOK)
        with build_folder(Path(name) / "build") as folder:
            made = compile_device(
                ["hook.hip"],
                [_TARGET],
                toolchain=toolchain,
                folder=folder,
                project=Path(name),
                report=lambda _: None,
            )
            (hook,) = read_contents(made.objects[_TARGET], _TARGET).hooks
    return f"{hook.symbol} compiles for {_TARGET}, with its bitcode"


def _optional() -> Iterator[DoctorLine]:
    from luthier_build import sources
    from luthier_build.wrapper import clang_beneath, find_hipcc, plugin_and_headers

    if sources.available():
        yield DoctorLine("libclang", "ok", "hooks are described with parameter names and C++ types")
    else:
        yield DoctorLine(
            "libclang", "optional", "not installed: hooks are described with LLVM types", "pip install libclang"
        )

    def hipcc() -> str:
        compiler = find_hipcc()
        clang = clang_beneath(compiler)
        plugin_and_headers(compiler)
        return f"{compiler}, with {clang} and its plugin"

    os.environ.setdefault("HIP_PLATFORM", "amd")  # as luthier-hipcc does
    yield _attempt(
        "hipcc",
        hipcc,
        "needed only by luthier-hipcc: install ROCm, or apt install hipcc and the llvm-*-dev of its clang",
        "optional",
    )
    for module, what, extra in (("SCons", "SCons builds", "scons"), ("hip", "real devices from Python", "hip")):
        if importlib.util.find_spec(module) is not None:
            yield DoctorLine(module, "ok", f"for {what}")
        else:
            yield DoctorLine(module, "optional", f"not installed: no {what}", f"pip install 'luthier[{extra}]'")


def _devices() -> DoctorLine:
    """Return the AMD GPUs in the kernel driver's topology in sysfs, where version 0 means a CPU."""
    names = []
    for properties in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        try:
            values = dict(line.split() for line in properties.read_text().splitlines() if len(line.split()) == 2)
            version = int(values.get("gfx_target_version", "0"))
        except (OSError, ValueError):
            continue
        if version:
            names.append(f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}")
    if names:
        return DoctorLine("devices", "ok", ", ".join(names))
    return DoctorLine("devices", "optional", "no AMD GPU found: kernels run on the emulated device (emu:gfx942, …)")


def _programs() -> Iterator[DoctorLine]:
    """Yield the lines for `luthier run`: the virtual device, the tool library, and ROCm."""
    from luthier.run.program import LIBRARY, TOOL_LIBRARY, library_folder

    try:
        yield DoctorLine("virtual device", "ok", f"{LIBRARY} and {TOOL_LIBRARY} in {library_folder()}")
    except LuthierError as problem:
        yield DoctorLine("virtual device", "optional", str(problem), "reinstall luthier where ROCr's headers are")

    def library(name: str, without: str) -> str:
        installed = rocm.find(name)
        if installed is None:
            raise BuildError(f"not found: luthier run supports {without}")
        return f"{installed.path}, version {installed.version}"

    fix = "install ROCm; on Debian: apt install hipcc"
    yield _attempt("ROCr", lambda: library(rocm.ROCR, "no programs"), fix, "optional")
    yield _attempt("HIP", lambda: library(rocm.HIP, "no HIP programs"), fix, "optional")
    taken = os.environ.get("HSA_TOOLS_LIB")
    if taken:
        missing = [path for path in taken.split() if os.sep in path and not Path(path).exists()]
        fix = f"not found: {', '.join(missing)}; unset HSA_TOOLS_LIB" if missing else ""
        status = "optional" if missing else "ok"
        yield DoctorLine("HSA_TOOLS_LIB", status, f"{taken}; Luthier's library is added", fix)
    else:
        yield DoctorLine("HSA_TOOLS_LIB", "ok", "not set: only Luthier's library is loaded")
