"""The header with the functions of the HSA and HIP APIs and the names of their arguments, from ROCm's own headers.

HSA's are the members of `CoreApiTable` and `AmdExtTable` in ``hsa_api_trace.h``, their arguments those of the
declarations. HIP's are in the comments of ``hip_prof_str.h``, which lists what its callbacks are given; without that
header there are none.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

FOLDERS = [Path(os.environ.get("ROCM_PATH", "/opt/rocm"), "include"), Path("/usr/include")]
HIP_ARGUMENTS = Path("hip/amd_detail/hip_prof_str.h")
_SPACE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*#[^\n]*", re.S | re.M)


def header() -> str:
    """Return the text of the header.

    Raises:
        FileNotFoundError: there is no ``hsa_api_trace.h``.
    """
    lines = ["// Made by api_header.py.", "#pragma once"]
    folder = next((folder / "hsa" for folder in FOLDERS if (folder / "hsa/hsa_api_trace.h").exists()), None)
    if folder is None:
        raise FileNotFoundError("hsa/hsa_api_trace.h")
    tables = _SPACE.sub("", (folder / "hsa_api_trace.h").read_text())
    declared = "\n".join(_SPACE.sub("", path.read_text()) for path in sorted(folder.glob("hsa*.h")))
    for table, macro in (("CoreApiTable", "LUTHIER_CORE_FUNCTIONS"), ("AmdExtTable", "LUTHIER_AMD_FUNCTIONS")):
        body = tables.partition(f"struct {table} {{")[2].partition("};")[0]
        lines.append(f"#define {macro}(F)" + "".join(f" \\\n  {row}" for row in _hsa_rows(body, declared)))
    path = next((folder / HIP_ARGUMENTS for folder in FOLDERS if (folder / HIP_ARGUMENTS).exists()), None)
    rows = [] if path is None else _hip_rows(path.read_text())
    lines.append("#define LUTHIER_HIP_ARGUMENTS(VALUE, OUTPUT, DIM3)" + "".join(f" \\\n  {row}" for row in rows))
    lines.append(f"#define LUTHIER_HAS_HIP {int(path is not None)}")
    return "\n".join(lines) + "\n"


def _hsa_rows(body: str, declared: str) -> Iterator[str]:
    """Yield ``F(name, "its,arguments")`` for each member of a table."""
    for name in re.findall(r"decltype\(\s*(\w+)\s*\)", body):
        place = re.search(rf"\b{name}\s*\(", declared)
        yield f'F({name}, "{",".join(_arguments(declared, place.end()) if place else ())}")'


def _arguments(text: str, start: int) -> Iterator[str]:
    """Yield the names of the parameters of a declaration whose first one begins there."""
    depth, parts = 1, [""]
    for letter in text[start:]:
        depth += (letter == "(") - (letter == ")")
        if not depth:
            break
        if letter == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += letter
    for part in parts:
        function = re.search(r"\(\s*\*\s*(\w+)\s*\)", part)
        words = re.findall(r"\w+", part.partition("[")[0])
        if words and words != ["void"]:
            yield function[1] if function else words[-1]


def _hip_rows(text: str) -> Iterator[str]:
    """Yield a row for each argument.

    It is ``DIM3(function, argument)``, ``OUTPUT`` where what it points at is kept, too, or ``VALUE``.
    """
    done = set()
    for name, arguments in re.findall(r"^// (\w+)(\[.*\])$", text, re.M):
        if name in done or f"HIP_API_ID_{name} = HIP_API_ID_NONE" in text or f"}} {name};" not in text:
            continue
        done.add(name)
        for kind, argument in ast.literal_eval(arguments):
            points = kind.endswith("*") and not kind.startswith("const") and kind not in ("void*", "char*")
            kept = points and f"args.{name}.{argument}__val = *" in text
            yield f"{'DIM3' if kind == 'dim3' else 'OUTPUT' if kept else 'VALUE'}({name}, {argument})"
