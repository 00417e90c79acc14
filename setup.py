"""The parts of the build that are not declarative: native code, programs and the list of packages."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel

from distutils.ccompiler import gen_preprocess_options  # isort: skip  (setuptools brings it)
from distutils.command.build_scripts import build_scripts  # isort: skip

REGISTERS = Path("runtime/luthier/isa/registers.py")
AGREEMENT, DEVICE_HEADER = "luthier.emulator.agreement", "luthier.wire.device_header"
"""Modules that make headers."""
VIRTUAL_DEVICE = Path("runtime/native/virtual_device")
KFD_SHIM = Path("runtime/native/kfd_shim")
SANITIZER = Path("runtime/native/sanitizer")
SYSTEM_CALLS = Path("runtime/native/system_calls")
TOOL_LIBRARY = Path("runtime/native/tool_library")
WIRE = Path("runtime/native/wire")
STACKS = Path("runtime/native/stacks")
EXECUTOR = Path("runtime/native/executor")
IN_PROCESS = EXECUTOR / "inprocess.cpp"
KFD = "luthier.run.native.libluthier_kfd"
SANITIZE = "luthier.run.native.libluthier_sanitizer"
CALLS = "luthier.run.native.libluthier_system_calls"
TOOLS = "luthier.run.native.libluthier_tools"
EXECUTE = "luthier.emulator.native.libluthier_executor"
FILES = {
    KFD: "libluthier_kfd.so",
    TOOLS: "libluthier_tools.so",
    SANITIZE: "libluthier_sanitizer.so",
    CALLS: "libluthier_system_calls.so",
    EXECUTE: "libluthier_executor.so",
}
"""Libraries that are not Python modules."""

LLVM_COMPONENTS = [
    "amdgpuasmparser",
    "amdgpudesc",
    "amdgpudisassembler",
    "amdgpuinfo",
    "mc",
    "mcdisassembler",
    "mcparser",
]


class BuildNative(build_ext):
    """Builds native code: queries llvm-config for LLVM's static libraries only when it builds the native module, makes
    the header with the emulator's layouts, names libraries that are not modules, and keeps objects between builds."""

    def finalize_options(self) -> None:
        """Put objects in a folder that the next build uses too, also a wheel's after an editable install's."""
        self.build_temp = self.build_temp or os.path.join("build", f"objects-{sys.implementation.cache_tag}")
        super().finalize_options()

    def get_ext_filename(self, name: str) -> str:
        """Return the file name of an extension; libraries have their own names."""
        module = next((module for module in FILES if name.endswith(module.rpartition(".")[2])), None)
        if module is None:
            return super().get_ext_filename(name)
        return os.path.join(*name.split(".")[:-1], FILES[module])

    def build_extensions(self) -> None:
        """Build the native module and the libraries."""
        Path("runtime", *KFD.split(".")[:-1]).mkdir(exist_ok=True)  # an editable install copies into it
        headers = Path(self.build_temp) / "headers"
        sys.path.insert(0, "runtime")  # the modules that make headers import nothing that must be built
        write_header(headers / "unit_numbers.h", runpy.run_path(str(REGISTERS))["native_header"]())
        agreement, device = (importlib.import_module(name) for name in (AGREEMENT, DEVICE_HEADER))
        write_header(headers / agreement.HEADER, agreement.header())
        write_header(Path(device.PATH), device.header())
        self.has_rocm = False  # without ROCm's headers, the tool library is not built
        with contextlib.suppress(FileNotFoundError):
            api = runpy.run_path(str(TOOL_LIBRARY / "api_header.py"))["header"]()
            write_header(headers / "api_functions.h", api)
            self.has_rocm = True
        llvm_config = os.environ.get("LLVM_CONFIG", "llvm-config-22")

        def ask(*arguments: str) -> list[str]:
            return subprocess.run(
                [llvm_config, "--link-static", *arguments], check=True, capture_output=True, text=True
            ).stdout.split()

        for extension in self.extensions:
            extension.include_dirs.append(str(headers))
            if extension.name in FILES:
                extension.include_dirs += [str(WIRE), str(STACKS), str(EXECUTOR)]
                continue
            extension.include_dirs += ask("--includedir")
            extension.extra_link_args += [
                *(f"-L{folder}" for folder in ask("--libdir")),
                *ask("--libs", *LLVM_COMPONENTS),
                # Needed by LLVM's Support library; llvm-config also lists z3 and xml2, which these components do not
                # use.
                "-lz",
                "-lzstd",
                "-Wl,--wrap=_ZNK4llvm5Twine5printERNS_11raw_ostreamE",  # see runtime/native/mc/null_stream.cpp
                "-Wl,--version-script=runtime/native/mc/exports.map",
                "-Wl,--gc-sections",
                "-Wl,-s",
            ]
        sys.path.insert(0, ".")
        kept_objects = importlib.import_module("luthier_build.kept_objects")
        self.compiler._compile = kept_objects.unless_current(self.compiler._compile, self.compiler.compiler_so_cxx)
        super().build_extensions()


def write_header(target: Path, text: str) -> None:
    """Write a header if its contents have changed."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


class CompileCommands(BuildNative):
    """Writes ``compile_commands.json`` (the compile command of each source, for tools that read C++) and the generated
    headers to the folder for temporary files; compiles nothing."""

    description = "write the commands that compile the native parts, for tools that read C++"

    def build_extensions(self) -> None:
        """Write one command for each source, the first one if it is in several libraries."""
        self.commands: dict[str, list[str]] = {}
        super().build_extensions()
        headers = Path(self.build_temp) / "headers"
        write_header(headers / WRAPPER_TABLES, wrapper_tables())
        self.commands[LAUNCHER] = launcher_command(headers, hipcc=True)
        entries = [
            {"directory": os.getcwd(), "file": source, "arguments": [*command, "-c", source]}
            for source, command in self.commands.items()
        ]
        write_header(Path(self.build_temp) / "compile_commands.json", json.dumps(entries, indent=1))

    def build_extension(self, extension: Extension) -> None:
        """Record the commands for the sources of an extension, unless it is left out without ROCm's headers."""
        if extension.optional and not self.has_rocm:
            return
        options = gen_preprocess_options(
            extension.define_macros, [*self.compiler.include_dirs, *extension.include_dirs]
        )
        for source in extension.sources:
            self.commands.setdefault(source, [*self.compiler.compiler_so_cxx, *options, *extension.extra_compile_args])

    def copy_extensions_to_source(self) -> None:
        """Copy nothing: nothing is built."""


NATIVE = [Path("runtime/native/mc"), Path("runtime/native/lifting/code"), Path("runtime/native/lifting/widths")]
LIFTING = Path("runtime/native/lifting")  # sources included by those in widths
AGREED = [
    *sorted(str(path) for path in Path("runtime/luthier/wire").glob("*.py")),
    *("runtime/luthier/emulator/agreement.py", "runtime/luthier/emulator/layout.py", str(REGISTERS)),
    "runtime/luthier/findings/kinds.py",
]
"""Sources of `agreement.h`."""
EMULATOR = {
    "extra_compile_args": ["-std=c++20", "-O3", "-Wall", "-Wextra", "-fvisibility=hidden"],
    "include_dirs": [str(VIRTUAL_DEVICE), str(KFD_SHIM)],
}
"""Settings of two libraries, which share objects. -O3 vectorizes loops over lanes."""
LAUNCHER = "runtime/native/launcher/launcher.cpp"
WRAPPER_TABLES = "wrapper_tables.h"


def wrapper_tables() -> str:
    """Return the header that the launchers include."""
    return runpy.run_path("luthier_build/wrapper_tables.py")["header"]()


def launcher_command(headers: Path, *, hipcc: bool) -> list[str]:
    """Return the command that compiles a launcher, without its source."""
    return [
        *shlex.split(os.environ.get("CXX", "c++")),
        *("-std=c++17", "-O2", "-fno-exceptions", "-fno-rtti"),
        *(f"-DLUTHIER_HIPCC={int(hipcc)}", f"-I{headers}"),
    ]


class BuildLaunchers(build_scripts):
    """Compiles ``luthier-cc`` and ``luthier-hipcc``, which are installed next to Python's scripts."""

    def run(self) -> None:
        """Build the launchers."""
        self.mkpath(self.build_dir)
        headers = Path(self.build_dir).parent / "headers"
        write_header(headers / WRAPPER_TABLES, wrapper_tables())
        for name, hipcc in (("luthier-cc", False), ("luthier-hipcc", True)):
            subprocess.run(
                [
                    *launcher_command(headers, hipcc=hipcc),
                    *("-static-libstdc++", "-static-libgcc", "-Wl,-s", LAUNCHER),
                    *("-o", os.path.join(self.build_dir, name)),
                ],
                check=True,
            )


class Wheel(bdist_wheel):
    """Gives the files in a wheel the same permissions for every umask, at checkout and at build."""

    def write_wheelfile(self, folder: str, *rest: str) -> None:
        """Write the last file and set the permissions of all files."""
        super().write_wheelfile(folder, *rest)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


ParallelCompile().install()  # one source for each core
setup(
    scripts=[LAUNCHER],
    packages=[
        *find_packages("runtime", include=["luthier", "luthier.*"]),
        *find_packages(".", include=["luthier_build", "luthier_build.*"]),
        "luthier_build.compiler_plugin",
    ],
    ext_modules=[
        Pybind11Extension(
            "luthier._mc",
            [str(path) for folder in NATIVE for path in sorted(folder.glob("*.cpp"))],
            depends=[
                *(str(path) for folder in (*NATIVE, LIFTING) for path in sorted(folder.glob("*.[chm]*"))),
                str(REGISTERS),
            ],
            cxx_std=17,
            extra_compile_args=["-O2", "-fvisibility=hidden"],
        ),
        Extension(
            EXECUTE,
            sorted(str(path) for path in EXECUTOR.glob("*.cpp")),
            language="c++",
            depends=[
                *sorted(str(path) for folder in (EXECUTOR, STACKS) for path in folder.glob("*.[hm]*")),
                *(str(WIRE / "failure.h"), *AGREED),
            ],
            **copy.deepcopy(EMULATOR),
            extra_link_args=[
                "-pthread",
                f"-Wl,--version-script={EXECUTOR}/executor.map",
                "-Wl,-z,defs",
                "-Wl,-s",
            ],
        ),
        Extension(
            KFD,
            sorted(
                str(path)
                for folder in (KFD_SHIM, VIRTUAL_DEVICE, WIRE, EXECUTOR)
                for path in folder.glob("*.cpp")
                if path != IN_PROCESS  # for Python
            ),
            language="c++",
            depends=[
                *sorted(
                    str(path)
                    for folder in (KFD_SHIM, VIRTUAL_DEVICE, WIRE, STACKS, EXECUTOR)
                    for path in folder.glob("**/*.[hm]*")
                ),
                *AGREED,
            ],
            **copy.deepcopy(EMULATOR),
            extra_link_args=[
                "-pthread",
                "-Wl,-soname,libluthier_kfd.so",
                f"-Wl,--version-script={KFD_SHIM}/exports.map",
                "-Wl,-z,defs",
                "-Wl,-s",
            ],
        ),
        Extension(
            SANITIZE,
            sorted(str(path) for folder in (SANITIZER, STACKS) for path in folder.glob("*.cpp")),
            language="c++",
            depends=[
                *(str(path) for path in SANITIZER.glob("*.[hm]*")),
                *(str(path) for folder in (WIRE, STACKS) for path in folder.glob("*.h")),
                *AGREED,
            ],
            extra_compile_args=["-std=c++20", "-O2", "-Wall", "-Wextra"],
            extra_link_args=[
                "-Wl,-soname,libluthier_sanitizer.so",
                f"-Wl,--version-script={SANITIZER}/exports.map",
                "-Wl,-s",
            ],
        ),
        Extension(
            CALLS,
            [str(SYSTEM_CALLS / "system_calls.cpp")],
            language="c++",
            depends=[str(SYSTEM_CALLS / "exports.map")],
            extra_compile_args=["-std=c++20", "-O2", "-Wall", "-Wextra"],
            extra_link_args=[
                "-Wl,-soname,libluthier_system_calls.so",
                f"-Wl,--version-script={SYSTEM_CALLS}/exports.map",
                "-Wl,-s",
            ],
        ),
        Extension(
            TOOLS,
            sorted(str(path) for folder in (TOOL_LIBRARY, WIRE, STACKS) for path in folder.glob("*.cpp")),
            language="c++",
            depends=[
                *sorted(str(path) for folder in (TOOL_LIBRARY, WIRE, STACKS) for path in folder.glob("*.[hmp]*")),
                *AGREED,
            ],
            define_macros=[("AMD_INTERNAL_BUILD", None)],  # ROCr's own headers find each other only so
            include_dirs=[f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/include/hsa", "/usr/include/hsa"],
            extra_compile_args=["-std=c++20", "-O2", "-Wall", "-Wextra"],
            extra_link_args=[
                "-pthread",
                "-Wl,-soname,libluthier_tools.so",
                f"-Wl,--version-script={TOOL_LIBRARY}/exports.map",
                "-Wl,-z,defs",
                "-Wl,-z,nodelete",  # handlers and tables point into it until the process ends
                "-Wl,-s",
            ],
            optional=True,
        ),
    ],
    cmdclass={
        "bdist_wheel": Wheel,
        "build_ext": BuildNative,
        "build_scripts": BuildLaunchers,
        "compile_commands": CompileCommands,
    },
)
