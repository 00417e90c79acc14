"""Stand-alone code objects with instrumented kernels, which also define the tool's variables under their names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from luthier.errors import LuthierError, PatchError, ToolError
from luthier.lifting import lift
from luthier.module import DeviceVariable, LoadedModule, qualified
from luthier.module.demand import wanting
from luthier.objects import CodeObject, Kernel, KernelDescriptor, Metadata, ObjectEditor
from luthier.objects.elf import R_AMDGPU_ABS32_HI, R_AMDGPU_ABS32_LO, R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64
from luthier.objects.metadata import KERNELS
from luthier.objects.origins import SECTION, encode, origins_of
from luthier.patch.layout.address_map import AddressMap
from luthier.patch.layout.placement import ENTRY_ALIGNMENT, PREFETCH_PADDING
from luthier.patch.outcome import PatchRefusal, PatchReport, RefusalKind, RefusedError, UnallocatedError
from luthier.patch.output.kernel import PatchedKernel, patch_kernel, write_code
from luthier.patch.payloads.code import ORIGINAL
from luthier.support.wording import enumerated
from luthier.tool.counts import CELL_BYTES, KernelCounters
from luthier.tool.options import PatchOptions
from luthier.tool.task import InstrumentationTask


class PatchedObject(Struct, frozen=True):
    """An instrumented code object."""

    data: bytes
    report: PatchReport
    counters: Mapping[str, KernelCounters]
    """Kernel -> its counters, for kernels with counts that go to no variable of a tool."""
    maps: tuple[AddressMap, ...]
    """Address map of each changed kernel."""
    sums: Mapping[str, KernelCounters] = field(default_factory=dict)
    """Kernel -> its counters, for kernels with sums that variables lack (`InstrumentationTask.solve_sums`)."""


def patch_object(
    object: CodeObject,
    instrument: Callable[[InstrumentationTask], None],
    kernels: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    strict: bool = False,
    hoist: bool | None = None,
    solve_sums: bool = False,
    most_stack: int | None = None,
) -> PatchedObject:
    """Instrument kernels of a code object.

    Refusals are reported and do not affect other hooks or kernels: a hook at a point in `KernelReport.refusals`, a
    whole kernel in `PatchReport.refused_kernels`.

    Args:
        object: the application's object.
        instrument: called with a task for every kernel, to insert hooks.
        kernels: names; None: all.
        progress: called with each kernel's name before it is patched.
        strict: whether a refusal is an error.
        hoist: whether to use counts in place of hooks that only count (`InstrumentationTask.hoist`); None: the default.
        solve_sums: whether variables are read by `luthier.devices.in_process.HereRun`, which adds the sums that follow
            from counters (`InstrumentationTask.solve_sums`).
        most_stack: maximum bytes of dynamic stack that kernels use (`InstrumentationTask.most_stack`).

    Raises:
        LuthierError: `instrument` raises it; the only named kernel cannot be lifted; or with `strict`, the first
            refusal, with its place.
        RefusedError: hooks or kernels were refused, and nothing is instrumented.
    """
    options = PatchOptions(strict=strict, hoist=hoist, solve_sums=solve_sums, most_stack=most_stack)
    return patch_object_with(options, object, instrument, kernels, progress)


def patch_object_with(
    options: PatchOptions,
    object: CodeObject,
    instrument: Callable[[InstrumentationTask], None],
    kernels: Iterable[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> PatchedObject:
    """Instrument kernels of a code object with patch options; see `patch_object`."""
    names = list(object.kernels) if kernels is None else list(kernels)
    unknown = [name for name in names if name not in object.kernels]
    if unknown:
        raise PatchError(f"no kernel {unknown[0]!r}; there are {enumerated(object.kernels)}", object=object.name)
    only = kernels is not None and len(names) == 1
    work = _Work(object, strict=options.strict)
    for name in names:
        if progress is not None:
            progress(name)
        try:
            lifted = lift(object, name)
        except LuthierError as problem:
            if options.strict or only:
                raise
            work.refused_kernels.append(PatchRefusal.of_kernel("lifting", name, problem))
            continue
        task = InstrumentationTask(lifted, options)
        with wanting(object.target):
            instrument(task)
        if task.insertions or task.counts or task.edits:
            work.add(task)
    return work.finish()


class _Work:
    """The kernels of one object during patching."""

    def __init__(self, object: CodeObject, *, strict: bool) -> None:
        self.object = object
        self.strict = strict
        self.refused_kernels: list[PatchRefusal] = []
        self._modules: dict[int, LoadedModule] = {}
        self._patched: list[PatchedKernel] = []
        self._owners: dict[int, str] = {}
        """Address of a descriptor -> the changed kernel that has it."""

    def add(self, task: InstrumentationTask) -> None:
        """Patch one kernel."""
        self._modules.update((id(module), module) for module in task.modules)
        try:
            self._check_descriptor(task.lifted.kernel)
            patched = patch_kernel(task)
            self._patched.append(patched)
            if patched.report.changed:
                self._owners[patched.kernel.descriptor_address] = patched.name
        except LuthierError as problem:
            if self.strict:
                raise
            kind: RefusalKind = "unallocated" if isinstance(problem, UnallocatedError) else "layout"
            self.refused_kernels.append(PatchRefusal.of_kernel(kind, task.lifted.kernel.name, problem))

    def _check_descriptor(self, kernel: Kernel) -> None:
        """Raise an error if another patched kernel has the same descriptor, which has only one entry point."""
        other = self._owners.get(kernel.descriptor_address)
        if other is not None:
            raise PatchError(
                f"its descriptor {kernel.symbol} belongs to {other}, too, which is already patched",
                object=self.object.name,
                kernel=kernel.name,
            )

    def finish(self) -> PatchedObject:
        """Write the object.

        Raises:
            RefusedError: hooks or kernels were refused, and nothing is instrumented.
        """
        while True:
            changed = [kernel for kernel in self._patched if kernel.report.changed]
            try:
                editor, variables, maps = self._write(changed)
                break
            except _CannotWrite as problem:
                if self.strict:
                    raise problem.reason from None
                self.refused_kernels.append(PatchRefusal.of_kernel("layout", problem.name, problem.reason))
                self._patched = [kernel for kernel in self._patched if kernel.name != problem.name]
        report = PatchReport(
            tuple(kernel.report for kernel in self._patched),
            {name: variable.size for name, variable in variables.items() if variable.is_state},
            tuple(self.refused_kernels),
        )
        if report.refusals and not changed:
            raise RefusedError(report, self.object.name)
        counters = _counters_of(changed)
        profiles = {name: kernel_counters for name, kernel_counters in counters.items() if kernel_counters.profiled}
        sums = {name: kernel_counters for name, kernel_counters in counters.items() if kernel_counters.sums}
        return PatchedObject(editor.finish(), report, profiles, maps, sums)

    def _write(
        self, changed: list[PatchedKernel]
    ) -> tuple[ObjectEditor, dict[str, DeviceVariable], tuple[AddressMap, ...]]:
        """Write variables, cells of counters and code. Return the editor, the variables, and the kernels' address maps.

        Raises:
            _CannotWrite: the code of a kernel cannot be written.
        """
        editor, modules = ObjectEditor(self.object), list(self._modules.values())
        variables, places = _place_variables(editor, self.object, modules)
        names = {qualified(module, name): name for module in modules for name in module.variables if name in places}
        cells = _place_cells(editor, list(_counters_of(changed).values()))
        names |= {name: name for name in cells}
        maps = _place_code(editor, self.object, changed, names, places | cells) if changed else ()
        return editor, variables, maps


def _counters_of(patched: Iterable[PatchedKernel]) -> dict[str, KernelCounters]:
    return {kernel.name: kernel.counters for kernel in patched if kernel.counters is not None}


class _CannotWrite(Exception):
    """The code of a kernel cannot be written."""

    def __init__(self, name: str, reason: LuthierError) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


def _place_variables(
    editor: ObjectEditor, object: CodeObject, modules: list[LoadedModule]
) -> tuple[dict[str, DeviceVariable], dict[str, int]]:
    """Define every variable of the modules. Return the variables and their addresses."""
    variables: dict[str, DeviceVariable] = {}
    for module in modules:
        for name, variable in module.variables.items():
            if variable.storage.problem:
                continue  # an error only if a hook uses it (luthier.payload.cache)
            if name in variables:
                raise ToolError(f"two tools define the variable {name}", object=module.name)
            known = object.symbol(name)
            if known is not None and known.defined and known.binding != "local":
                raise ToolError(
                    f"{object.name} defines the symbol {name}, and so does the tool: rename its variable, or use "
                    "`luthier run`, which keeps both",
                    object=module.name,
                )
            variables[name] = variable
    offsets: dict[str, int] = {}
    size = 0
    for name, variable in variables.items():
        size = -(-size // variable.storage.align) * variable.storage.align
        offsets[name] = size
        size += variable.size
    if not size:
        return variables, {}
    base = editor.reserve(size, flags="rw", name=".luthier.data")
    symbols = {name: base + offset for name, offset in offsets.items()}
    for name, variable in variables.items():
        editor.write(symbols[name], variable.storage.initial)
        editor.define_symbol(name, symbols[name], variable.size, type="object")
    for variable in variables.values():
        for offset, symbol, addend in variable.storage.pointers:
            editor.add_relocation(symbols[variable.symbol] + offset, R_AMDGPU_ABS64, addend, symbol)
    return variables, symbols


def _place_cells(editor: ObjectEditor, counters: list[KernelCounters]) -> dict[str, int]:
    """Define the zero-initialised cells of kernels. Return symbol -> address."""
    size = sum(-(-each.size // CELL_BYTES) * CELL_BYTES for each in counters)
    address = editor.reserve(size, flags="rw", name=".luthier.counts") if size else 0
    symbols = {}
    for kernel_counters in counters:
        if not kernel_counters.size:
            continue
        symbols[kernel_counters.symbol] = address
        editor.define_symbol(kernel_counters.symbol, address, kernel_counters.size, type="object")
        address += -(-kernel_counters.size // CELL_BYTES) * CELL_BYTES
    return symbols


def _place_code(
    editor: ObjectEditor,
    object: CodeObject,
    patched: list[PatchedKernel],
    names: Mapping[str, str],
    places: Mapping[str, int],
) -> tuple[AddressMap, ...]:
    """Write the code of patched kernels into the object, and return their address maps.

    Args:
        names: symbol in patched code -> symbol in the object.
        places: symbol -> address.
    """
    symbols = {ORIGINAL: 0, **{called: places[name] for called, name in names.items()}}
    offsets, size = [], 0
    for kernel in patched:
        size = -(-size // ENTRY_ALIGNMENT) * ENTRY_ALIGNMENT
        offsets.append(size)
        size += kernel.size
    base = editor.reserve(size, flags="rx", name=".luthier.text")
    tables = reserve_tables(editor, patched)
    rows = []
    for kernel, offset in zip(patched, offsets, strict=True):
        address = base + offset
        moved = tables[kernel.name]
        try:
            code = write_code(kernel, address, symbols, moved)
        except LuthierError as problem:
            raise _CannotWrite(kernel.name, problem) from problem
        editor.write(address, code)
        original = kernel.kernel
        for fields in kernel.symbols:
            if not fields.distance:
                kind = R_AMDGPU_ABS32_HI if fields.high else R_AMDGPU_ABS32_LO
                symbol, addend = names.get(fields.symbol), fields.addend
                if symbol is None:  # the original's code, whose descriptor stays in place
                    symbol, addend = original.symbol, addend - original.descriptor_address
                for place in (address + fields.offsets.astype(np.int64)).tolist():
                    editor.add_relocation(place, kind, addend, symbol)
        for targets, place in zip(kernel.tables, moved, strict=True):
            for number, target in enumerate(targets):
                editor.add_relocation(place + 8 * number, R_AMDGPU_RELATIVE64, address + target)
        entry = address + kernel.entry_offset
        descriptor = replace(kernel.descriptor, kernel_code_entry_byte_offset=entry - original.descriptor_address)
        editor.write(original.descriptor_address, descriptor.encode())
        named = object.symbol(original.name)
        if named is not None and named.address == original.entry:  # a kernel may have the name of another symbol
            editor.move_symbol(original.name, entry, kernel.size - kernel.entry_offset - PREFETCH_PADDING)
        rows.append((kernel, descriptor))
    editor.set_metadata(updated_metadata(object, rows, keep_unpatched=True))
    origins = [kernel.origins.at(base + offset) for kernel, offset in zip(patched, offsets, strict=True)]
    editor.add_section(SECTION, encode([*origins_of(object), *origins]))
    return tuple(kernel.address_map(base + offset) for kernel, offset in zip(patched, offsets, strict=True))


def reserve_tables(editor: ObjectEditor, patched: list[PatchedKernel]) -> dict[str, list[int]]:
    """Reserve space for copies of the constant tables of function addresses. Return kernel -> address of each copy.

    A patched kernel calls its own copies of functions, so it needs its own tables of their addresses.
    """
    size = sum(8 * len(table) for kernel in patched for table in kernel.tables)
    place = editor.reserve(size, flags="rw", name=".luthier.got") if size else 0
    addresses: dict[str, list[int]] = {}
    for kernel in patched:
        addresses[kernel.name] = []
        for table in kernel.tables:
            addresses[kernel.name].append(place)
            place += 8 * len(table)
    return addresses


def updated_metadata(
    object: CodeObject, patched: Iterable[tuple[PatchedKernel, KernelDescriptor]], *, keep_unpatched: bool
) -> Metadata:
    """Return the object's metadata with the registers, private memory and LDS of patched kernels.

    Args:
        patched: patched kernels with their new descriptors.
        keep_unpatched: whether to keep the metadata of other kernels.
    """
    changed = {kernel.name: (kernel, descriptor) for kernel, descriptor in patched}
    rows = object.metadata.get(KERNELS, ())
    if not keep_unpatched:
        rows = [row for row in rows if row.get(".name") in changed]
    rows = copy.deepcopy(rows)
    for row in rows:
        if row.get(".name") in changed:
            kernel, descriptor = changed[row[".name"]]
            _update_row(row, kernel, descriptor)
    return {**object.metadata, **({KERNELS: rows} if KERNELS in object.metadata else {})}


def _update_row(row: dict[str, Any], kernel: PatchedKernel, descriptor: KernelDescriptor) -> None:
    """Update the metadata of a kernel.

    Register counts are those used, not those allocated, as compilers report them. Missing sizes of memory are added,
    since runtimes may assume 0.
    """
    if ".agpr_count" in row:
        row[".agpr_count"] = max(row[".agpr_count"], kernel.agprs)
    if ".vgpr_count" in row and (kernel.vgprs or kernel.agprs):
        # In a unified file, AGPRs follow the rounded number of VGPRs.
        unified = descriptor.target.unified_vgprs and kernel.agprs
        row[".vgpr_count"] = max(row[".vgpr_count"], descriptor.vgprs if unified else kernel.vgprs)
    if ".sgpr_count" in row and kernel.sgprs:
        row[".sgpr_count"] = max(row[".sgpr_count"], min(kernel.sgprs + 6, descriptor.sgprs))
    for name in ("private_segment_fixed_size", "group_segment_fixed_size"):
        size = getattr(descriptor, name)
        if f".{name}" in row or size:
            row[f".{name}"] = size
