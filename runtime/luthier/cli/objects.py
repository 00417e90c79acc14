"""`luthier objects`: the code objects and kernels in any container, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from luthier.errors import TargetError
from luthier.objects import CodeObject, Image, Kernel, find_images


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="code object, offload bundle, host executable or library, or archive")
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def run(args: argparse.Namespace) -> int:
    objects, unknown = _load(find_images(args.file))
    if args.json:
        rows = [describe(found) for found in objects]
        rows += [{"name": image.name, "id": image.id, "unsupported": str(why)} for image, why in unknown]
        print(json.dumps(rows, indent=2))
    else:
        print("\n\n".join([table(found) for found in objects] + [f"{i.name}: not supported: {e}" for i, e in unknown]))
    return 0


def _load(images: list[Image]) -> tuple[list[CodeObject], list[tuple[Image, TargetError]]]:
    """The code objects, and the images for processors that are not known.

    Raises:
        TargetError: all of them are.
    """
    objects: list[CodeObject] = []
    unknown: list[tuple[Image, TargetError]] = []
    for image in images:
        try:
            objects.append(CodeObject(image.data, image.name))
        except TargetError as problem:
            unknown.append((image, problem))
    if not objects:
        raise unknown[0][1]
    return objects, unknown


def describe(found: CodeObject) -> dict[str, Any]:
    """What `--json` says of one code object."""
    return {
        "name": found.name,
        "target": str(found.target),
        "code_object_version": found.abi,
        "size": len(found.data),
        "kernels": [_describe_kernel(kernel) for kernel in found.kernels.values()],
        "variables": [
            {"name": symbol.name, "address": symbol.address, "size": symbol.size}
            for symbol in found.symbols
            if symbol.type == "object" and symbol.defined and not symbol.name.endswith(".kd")
        ],
        "relocations": len(found.relocations),
    }


def _describe_kernel(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "entry": kernel.entry,
        "code_size": kernel.code_size,
        "wave_size": kernel.wave_size,
        "vgprs": kernel.vgpr_count,
        "agprs": kernel.agpr_count,
        "sgprs": kernel.sgpr_count,
        "allocated_vgprs": kernel.allocated_vgprs,
        "lds": kernel.group_segment_fixed_size,
        "scratch": kernel.private_segment_fixed_size,
        "dynamic_stack": kernel.uses_dynamic_stack,
        "kernarg_size": kernel.kernarg_size,
        "max_flat_workgroup_size": kernel.max_flat_workgroup_size,
        "arguments": [
            {key: value for key, value in asdict(argument).items() if value or key in ("offset", "size", "value_kind")}
            for argument in kernel.arguments
        ],
    }


_HEADINGS = ("KERNEL", "CODE", "VGPRS", "AGPRS", "SGPRS", "WAVE", "LDS", "SCRATCH", "KERNARG", "ARGUMENTS")


def table(found: CodeObject) -> str:
    """One code object as text. CODE, LDS, SCRATCH (per work-item) and KERNARG are in bytes."""
    count = len(found.kernels)
    title = (
        f"{found.name}: {found.target}, code object v{found.abi}, {len(found.data):,} bytes, "
        f"{count} kernel{'' if count == 1 else 's'}"
    )
    rows = [_HEADINGS] + [
        (
            kernel.name if kernel.name.isprintable() else ascii(kernel.name),
            str(kernel.code_size or "?"),
            str(kernel.vgpr_count),
            str(kernel.agpr_count),
            str(kernel.sgpr_count),
            str(kernel.wave_size),
            str(kernel.group_segment_fixed_size),
            str(kernel.private_segment_fixed_size) + ("+" if kernel.uses_dynamic_stack else ""),
            str(kernel.kernarg_size),
            _summary(kernel),
        )
        for kernel in found.kernels.values()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  " + "  ".join([*cells, row[-1]]).rstrip())
    return "\n".join([title, *lines] if count else [title])


def _summary(kernel: Kernel) -> str:
    """``3 global_buffer, 1 by_value, 12 hidden``"""
    kinds = Counter("hidden" if argument.hidden else argument.value_kind for argument in kernel.arguments)
    return ", ".join(f"{number} {kind}" for kind, number in kinds.items())
