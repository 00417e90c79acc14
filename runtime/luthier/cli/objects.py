"""`luthier objects`: list the code objects and kernels in any container, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from luthier.cli.common import STANDARD_OUTPUT, add_json_argument, put_json, say_fitting
from luthier.cli.selection import FILES, add_kernel_argument, searched
from luthier.errors import LuthierError, TargetError
from luthier.isa.listing import named_registers
from luthier.objects import CodeObject, DeviceImage, Kernel, KernelArgument, find_images
from luthier.objects.disagreements import disagreements
from luthier.objects.dynamic_lds import has_dynamic_lds
from luthier.objects.names import is_selected, select
from luthier.support.wording import counted
from luthier.terminal import say_text, visible

if TYPE_CHECKING:
    from luthier.lifting.allocation import Unallocated

_MOST_COMPARED = 1 << 22
"""Limit for the bytes of code whose registers are compared with descriptors, about a second of decoding."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", metavar="FILE", help=FILES)
    add_kernel_argument(parser)
    add_json_argument(parser, "all facts")


def run(args: argparse.Namespace) -> int:
    """Print each object as soon as it is found.

    Raises:
        LuthierError: an object is malformed (those before it are printed), all are for unknown processors, or no
            kernel matches --kernel.
    """
    shows: list[_Tables | _JsonList] = [_JsonList(args.json)] if args.json else []
    shows += [_Tables()] if args.json != STANDARD_OUTPUT else []
    names: list[str] = []
    unknown: list[tuple[DeviceImage, TargetError]] = []
    known = False
    registers = _Registers()
    source, file, _ = searched(args.file)
    for image in find_images(source, file):
        try:
            object = CodeObject(image.data, image.name)
        except TargetError as problem:
            unknown.append((image, problem))
        else:
            known = True
            names += object.kernels
            kernels = [one for name, one in object.kernels.items() if is_selected(name, args.kernel)]
            if kernels or not args.kernel:
                number, unallocated = None if image.name == file else image.number, registers.of(object, kernels)
                for show in shows:
                    show.object(object, kernels, number, unallocated)
    if not known:
        raise unknown[0][1]
    select(names, args.kernel, file=file)
    for show in shows:
        for image, why in unknown:
            show.unsupported(image, why)
        show.end()
    if registers.left_out:
        what = f"registers of {counted(registers.left_out, 'kernel')} are not compared with their descriptors"
        say_text(f"{what}; `luthier check` compares them", file=sys.stderr)
    return 0


_Unallocated = Mapping[str, "Sequence[Unallocated] | None"]
"""Kernel -> registers that it uses and its descriptor does not allocate; None if they are not known."""
_NONE: _Unallocated = {}


class _Registers:
    """Compares the registers that kernels use with those that they allocate, for a limited amount of code.

    Decodes only a kernel's own code, and the functions that it calls if its own code uses too many.
    """

    def __init__(self) -> None:
        self._left = _MOST_COMPARED
        self.left_out = 0
        """Kernels that are not compared."""

    def of(self, object: CodeObject, kernels: Sequence[Kernel]) -> _Unallocated:
        """Return the registers that kernels of an object use without allocating them."""
        return {kernel.name: self._of_kernel(object, kernel) for kernel in kernels}

    def _of_kernel(self, object: CodeObject, kernel: Kernel) -> Sequence[Unallocated] | None:
        if 0 < kernel.code_size <= self._left:
            self._left -= kernel.code_size
            try:
                code = object.read(kernel.entry, kernel.code_size)
                used, lds, scratch = named_registers(object.target, kernel.wave_size, code, kernel.entry)
                limits = kernel.descriptor.register_limits(uses_agprs=used["a"] > 0)
                bounded = lds and not has_dynamic_lds(object, kernel)
                if all(used[file] <= limit for file, limit in limits.items()) and not (bounded or scratch):
                    return ()
                from luthier.lifting import lift  # needs NumPy
                from luthier.lifting.allocation import unallocated

                return unallocated(lift(object, kernel.name))
            except LuthierError:
                pass
        self.left_out += 1
        return None


class _Tables:
    """Prints tables, separated by empty lines."""

    def __init__(self) -> None:
        self._before = ""

    def object(
        self, object: CodeObject, kernels: Sequence[Kernel], number: int | None, unallocated: _Unallocated
    ) -> None:
        self._write(table(object, kernels, number, unallocated))

    def unsupported(self, image: DeviceImage, why: TargetError) -> None:
        self._write(f"{visible(image.name)}: object {image.number}, not supported: {why}")

    def end(self) -> None:
        pass

    def _write(self, text: str) -> None:
        say_fitting(self._before + text, flush=True)
        self._before = "\n"


class _JsonList:
    """Prints a JSON list, one line for each object as soon as it is found, or writes it to a file at the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []
        self._before = "["

    def object(
        self, object: CodeObject, kernels: Sequence[Kernel], number: int | None, unallocated: _Unallocated
    ) -> None:
        self._write({"number": number or 0, **describe(object, kernels, unallocated)})

    def unsupported(self, image: DeviceImage, why: TargetError) -> None:
        self._write({"number": image.number, "name": image.name, "id": image.id, "unsupported": str(why)})

    def end(self) -> None:
        if self._path == STANDARD_OUTPUT:
            say_text("\n]")
        else:
            put_json(self._path, self._rows)

    def _write(self, row: dict[str, Any]) -> None:
        if self._path != STANDARD_OUTPUT:
            self._rows.append(row)
            return
        say_text(self._before + "\n" + json.dumps(row), end="", flush=True)
        self._before = ","


def describe(object: CodeObject, kernels: Sequence[Kernel], unallocated: _Unallocated = _NONE) -> dict[str, Any]:
    """Return the content of `--json` for one code object and these kernels."""
    arguments = {id(kernel.arguments): kernel.arguments for kernel in kernels}  # most share them
    described = {number: [_describe_argument(one) for one in every] for number, every in arguments.items()}
    return {
        "name": object.name,
        "target": str(object.target),
        "code_object_version": object.abi,
        "size": object.size,
        "kernels": [
            {**_describe_kernel(kernel, unallocated.get(kernel.name)), "arguments": described[id(kernel.arguments)]}
            for kernel in kernels
        ],
        "variables": [
            {"name": symbol.name, "address": symbol.address, "size": symbol.size}
            for symbol in object.symbols
            if symbol.type == "object" and symbol.defined and not symbol.name.endswith(".kd")
        ],
        "relocations": len(object.relocations),
    }


def _describe_argument(argument: KernelArgument) -> dict[str, Any]:
    return {key: value for key, value in asdict(argument).items() if value or key in ("offset", "size", "value_kind")}


def _describe_kernel(kernel: Kernel, unallocated: Sequence[Unallocated] | None) -> dict[str, Any]:
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
        "disagreements": [one._asdict() for one in disagreements(kernel)],
        "unallocated": None if unallocated is None else [one.to_json() for one in unallocated],
    }


_HEADINGS = ("KERNEL", "CODE", "VGPRS", "AGPRS", "SGPRS", "WAVE", "LDS", "SCRATCH", "KERNARG", "ARGUMENTS")


def table(
    object: CodeObject, kernels: Sequence[Kernel], number: int | None = None, unallocated: _Unallocated = _NONE
) -> str:
    """Format a code object and these kernels as text.

    CODE, LDS, SCRATCH (per work-item) and KERNARG are in bytes.

    Args:
        number: number of the object in its container.
    """
    place = "" if number is None else f"object {number}, "
    title = (
        f"{visible(object.name)}: {place}{object.target}, code object v{object.abi}, {object.size:,} bytes, "
        f"{counted(len(object.kernels), 'kernel')}"
    )
    arguments = {id(kernel.arguments): kernel.arguments for kernel in kernels}  # most share them
    summaries = {number: _summary(every) for number, every in arguments.items()}
    rows = [_HEADINGS] + [
        (
            visible(kernel.name),
            str(kernel.code_size or "?"),
            str(kernel.vgpr_count),
            str(kernel.agpr_count),
            str(kernel.sgpr_count),
            str(kernel.wave_size),
            str(kernel.group_segment_fixed_size),
            str(kernel.private_segment_fixed_size) + ("+" if kernel.uses_dynamic_stack else ""),
            str(kernel.kernarg_size),
            summaries[id(kernel.arguments)],
        )
        for kernel in kernels
    ]
    first, *widths, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    layout = f"  {{:{first}}}" + "".join(f"  {{:>{width}}}" for width in widths) + "  {}"
    lines = [layout.format(*row).rstrip() for row in rows]
    for row, kernel in zip(rows[1:], kernels, strict=True):
        lines += [f"  {row[0]}: {one}" for one in disagreements(kernel)]
        lines += [f"  {row[0]}: {one.sentence}" for one in unallocated.get(kernel.name) or ()]
    return "\n".join([title, *lines] if object.kernels else [title])


def _summary(arguments: tuple[KernelArgument, ...]) -> str:
    """Summarize the kinds of arguments: ``3 global_buffer, 1 by_value, 12 hidden``."""
    kinds = Counter("hidden" if argument.hidden else argument.value_kind for argument in arguments)
    return ", ".join(f"{number} {kind}" for kind, number in kinds.items())
