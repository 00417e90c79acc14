"""Tables of compile commands for the native launchers, and of what `luthier_build.wrapper` remembers for them.

The build makes ``wrapper_tables.h`` of them, for runtime/native/launcher.
"""

from __future__ import annotations

import json
import re

HIP_SUFFIXES = (".hip", ".hipi")
HIPCC_SUFFIXES = (".hip", ".hipi", ".cu", ".cpp", ".cc", ".cxx", ".c++", ".C", ".CPP", ".cp")
"""Suffixes of files that hipcc compiles as HIP by default."""
LAUNCHERS = ("ccache", "sccache", "distcc", "icecc", "buildcache")

# fmt: off
WITH_VALUE = (
    "-o", "-x", "-I", "-D", "-U", "-L", "-l", "-F", "-B", "-T", "-u", "-z", "-e", "-A", "-G", "-MF", "-MT", "-MQ",
    "-MJ", "-include", "-imacros", "-include-pch", "-isystem", "-idirafter", "-iquote", "-iprefix", "-iwithprefix",
    "-iwithprefixbefore", "-isysroot", "-Xclang", "-Xlinker", "-Xassembler", "-Xpreprocessor", "-Xanalyzer",
    "-Xoffload-linker", "-Xopenmp-target", "-Xcuda-ptxas", "-Xcuda-fatbinary", "-mllvm", "-target", "-arch",
    "-framework", "--param", "-dumpbase", "-working-directory", "-serialize-diagnostics",
    "--serialize-diagnostics", "-install_name",
)
"""Options whose value is the next argument, like all ``-Xarch_…`` options."""

ONLY_ASKING = (
    "--version", "--help", "-help", "-dumpversion", "-dumpmachine", "-print-diagnostic-options",
    "-print-effective-triple", "-print-libgcc-file-name", "-print-multiarch", "-print-resource-dir",
    "-print-runtime-dir", "-print-search-dirs", "-print-supported-cpus", "-print-target-triple", "-print-targets",
)
"""Options that read no source. Other options print something and also compile, such as ``-print-rocm-search-dirs``."""

NO_CODE = (
    "-E", "-M", "-MM", "-fsyntax-only", "--analyze", "-emit-ast", "--precompile", "-###",
    "-rewrite-objc", "-rewrite-legacy-objc", "-module-file-info", "-verify-pch",
)
"""Options after which no device code is generated."""

HOST_ONLY = ("--cuda-host-only", "--offload-host-only")
NOT_HOST_ONLY = (
    "--cuda-device-only", "--offload-device-only", "--cuda-compile-host-device", "--offload-host-device",
)
"""Options of both tuples override each other; the last one counts."""
# fmt: on

PLUGIN_FLAGS = ("-Xarch_device", "-fpass-plugin=", "-fplugin=", "-Xclang", "-fdepfile-entry=")
"""Flags that load the plugin for device code; its path follows each ``=``."""
VARIABLES = (
    "PATH",
    "HIP_PLATFORM",
    "HIP_CLANG_PATH",
    "HIP_PATH",
    "ROCM_PATH",
    "HIP_COMPILER",
    "CXX",
    "LUTHIER_ROCM_PATH",
)
"""Variables that select the clang of hipcc, or the compiler that builds the plugin."""
MARKER = "luthier-native-launcher"
"""Text that identifies the native programs."""
STARTED = "LUTHIER_HIPCC_STARTED"
"""Variable with the programs that luthier-hipcc has already executed, in case one of them starts luthier-hipcc."""
ANSWER_FORMAT = "luthier-wrapper-1"
"""First and last field of a file with an answer."""
HASH_START, HASH_FACTOR = 14695981039346656037, 1099511628211
"""Constants of FNV-1a, the hash in the names of these files."""


def header() -> str:
    """Return the tables as C++17; names change from ``HIP_SUFFIXES`` to ``HipSuffixes``."""
    lines = [
        "// Made by luthier_build/wrapper_tables.py.",
        "#pragma once",
        "#include <cstdint>",
        "#include <string_view>",
    ]
    for name, value in globals().items():
        if not re.fullmatch(r"[A-Z][A-Z_]*", name):
            continue
        spelt = "".join(word.capitalize() for word in name.split("_"))
        if isinstance(value, int):
            lines.append(f"constexpr uint64_t {spelt} = {value}u;")
        elif isinstance(value, str):
            lines.append(f"__attribute__((used)) const char {spelt}[] = {json.dumps(value)};")
        else:
            lines.append(f"constexpr std::string_view {spelt}[] = {{{', '.join(map(json.dumps, value))}}};")
    return "\n".join([*lines, ""])
