"""The one part of the build that is not declarative: the native module, and which packages there are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import find_packages, setup

LLVM_COMPONENTS = [
    "amdgpuasmparser",
    "amdgpudesc",
    "amdgpudisassembler",
    "amdgpuinfo",
    "mc",
    "mcdisassembler",
    "mcparser",
]


class LLVMBuildExt(build_ext):
    """Asks llvm-config for the static LLVM libraries only when the native module is really built."""

    def build_extensions(self) -> None:
        llvm_config = os.environ.get("LLVM_CONFIG", "llvm-config-22")

        def ask(*arguments: str) -> list[str]:
            return subprocess.run(
                [llvm_config, "--link-static", *arguments], check=True, capture_output=True, text=True
            ).stdout.split()

        for extension in self.extensions:
            extension.include_dirs += ask("--includedir")
            extension.extra_link_args += [
                *(f"-L{folder}" for folder in ask("--libdir")),
                *ask("--libs", *LLVM_COMPONENTS),
                # What LLVM's Support library needs here; llvm-config also names z3 and xml2, which these components do
                # not use.
                "-lz",
                "-lzstd",
                "-Wl,--wrap=_ZNK4llvm5Twine5printERNS_11raw_ostreamE",  # runtime/native/mc/null_stream.cpp says why
                "-Wl,--version-script=runtime/native/mc/exports.map",
                "-Wl,--gc-sections",
                "-Wl,-s",
            ]
        super().build_extensions()


setup(
    packages=[
        *find_packages("runtime", include=["luthier", "luthier.*"]),
        *find_packages(".", include=["luthier_build", "luthier_build.*"]),
        "luthier_build.compiler_plugin",
    ],
    ext_modules=[
        Pybind11Extension(
            "luthier._mc",
            sorted(str(path) for path in Path("runtime/native").glob("*/*.cpp")),
            depends=sorted(str(path) for path in Path("runtime/native").glob("*/*.[hm]*")),
            cxx_std=17,
            extra_compile_args=["-O2", "-fvisibility=hidden"],
        )
    ],
    cmdclass={"build_ext": LLVMBuildExt},
)
