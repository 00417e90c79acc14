"""Writes layout.h: what `luthier.emulator.layout` says, for C++.

Run by the build; the digest in the header is compared with Python's when a library is loaded, so that one built from
other layouts is noticed.
"""

from __future__ import annotations

import runpy
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "luthier" / "emulator" / "layout.py"


def header() -> str:
    """Each layout as a namespace of `Field`s, each number as a constant. `luthier` must be on the module path."""
    names = runpy.run_path(str(SOURCE))
    lines = [
        "// Made from luthier/emulator/layout.py by layout_header.py.",
        "#pragma once",
        "#include <cstdint>",
        "namespace luthier::layout {",
        f'inline constexpr char kDigest[] = "{names["digest"]()}";',
        "struct Field { uint32_t offset, size; };",
    ]
    for name, value in names.items():
        if isinstance(value, names["Layout"]):
            fields = "".join(
                f"inline constexpr Field {key}{{{field.offset}, {field.size}}}; " for key, field in value.fields.items()
            )
            lines.append(f"namespace {name.lower()} {{ {fields}inline constexpr uint32_t kSize = {value.size}; }}")
        elif isinstance(value, int) and name.isupper():
            lines.append(f"inline constexpr uint64_t {name} = {value}u;")
    return "\n".join([*lines, "}  // namespace luthier::layout", ""])
