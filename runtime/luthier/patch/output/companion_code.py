"""A code object that is loaded in addition to the original, and contains only one patched kernel.

The kernel refers to data in the loaded original, and in blocks of variables that all patched kernels of a device share.
Both are *external*: undefined symbols, which the loader resolves (``hsa_executable_agent_global_variable_define``).
Since such an address may be anywhere in memory, it is not PC-relative: s_getpc_b64 becomes ``s_mov_b64 …, 0`` of the
same size, and relocations set the two literals that are added to it to the halves of the absolute address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from luthier.errors import PatchError
from luthier.isa import Isa
from luthier.module import LoadedModule, qualified
from luthier.objects import CodeObject, ObjectEditor
from luthier.objects.descriptor import DESCRIPTOR_SIZE
from luthier.objects.elf import R_AMDGPU_ABS32_HI, R_AMDGPU_ABS32_LO, R_AMDGPU_RELATIVE64
from luthier.objects.origins import SECTION, encode
from luthier.objects.skeleton import empty_object
from luthier.patch.layout.placement import PREFETCH_PADDING
from luthier.patch.outcome import PatchReport, RefusedError
from luthier.patch.output.companion import Companion, VariableBlock, cell_modules, sizes_of
from luthier.patch.output.kernel import PatchedKernel, patch_kernel, write_code
from luthier.patch.output.object import reserve_tables, updated_metadata
from luthier.patch.payloads.code import ORIGINAL
from luthier.tool.task import InstrumentationTask


def patch_task(
    object: CodeObject, task: InstrumentationTask, block_of: Callable[[LoadedModule], VariableBlock]
) -> Companion:
    """Instrument one kernel of a code object.

    Args:
        object: the application's object.
        task: the requested changes.
        block_of: returns the block of a module's variables.

    Raises:
        LuthierError: the kernel cannot be moved.
        RefusedError: every hook was refused.
    """
    patched = patch_kernel(task)
    modules = task.modules
    for module in cell_modules(object, patched.counters):
        modules.append(module)
        patched = _renamed(patched, module.symbol, qualified(module, module.symbol))
    blocks = [block_of(module) for module in modules]
    if not patched.report.changed:
        raise RefusedError(PatchReport((patched.report,), sizes_of(blocks), ()), object.name)
    used = {field.symbol for field in patched.symbols}
    if patched.counters is not None:  # variables of sums need a place even if this kernel adds nothing to them
        used |= {qualified(one.into.module, one.into.variable) for one in patched.counters.sums}
    needed = tuple(block for block in blocks if used.intersection(block.places()))
    data = _write(object, patched, task.lifted.isa, needed)
    return Companion.of(data, patched.report, needed, patched.counters)


def _renamed(patched: PatchedKernel, symbol: str, name: str) -> PatchedKernel:
    """Return the kernel with the symbol `symbol` renamed in its references."""
    symbols = tuple(field._replace(symbol=name) if field.symbol == symbol else field for field in patched.symbols)
    return replace(patched, symbols=symbols)


def _write(object: CodeObject, patched: PatchedKernel, isa: Isa, blocks: Sequence[VariableBlock]) -> bytes:
    editor = ObjectEditor(empty_object(object.elf.header, object.name))
    for symbol in (ORIGINAL, *(block.symbol for block in blocks)):
        editor.import_symbol(symbol)
    tables = reserve_tables(editor, [patched])[patched.name]
    base = editor.reserve(patched.size, flags="rx", name=".text")
    code, external = _external(patched, isa, blocks)
    editor.write(base, write_code(code, base, {}, tables))
    for offset, high, symbol, addend in external:
        kind = R_AMDGPU_ABS32_HI if high else R_AMDGPU_ABS32_LO
        editor.add_relocation(base + offset, kind, addend, symbol)
    for targets, place in zip(patched.tables, tables, strict=True):
        for number, target in enumerate(targets):
            editor.add_relocation(place + 8 * number, R_AMDGPU_RELATIVE64, base + target)
    entry = base + patched.entry_offset
    place = editor.reserve(DESCRIPTOR_SIZE, flags="r", name=".rodata")
    descriptor = replace(patched.descriptor, kernel_code_entry_byte_offset=entry - place)
    editor.write(place, descriptor.encode())
    editor.define_symbol(patched.kernel.symbol, place, DESCRIPTOR_SIZE)
    if patched.kernel.symbol != patched.name:
        size = patched.size - patched.entry_offset - PREFETCH_PADDING
        editor.define_symbol(patched.name, entry, size, type="func")
    editor.set_metadata(updated_metadata(object, [(patched, descriptor)], keep_unpatched=False))
    editor.add_section(SECTION, encode([patched.origins.at(base)]))
    return editor.finish()


_External = tuple[int, bool, str, int]
"""A 32-bit field for half of an address: byte offset in the code, whether it is the upper half, symbol, addend."""


def _external(
    patched: PatchedKernel, isa: Isa, blocks: Sequence[VariableBlock]
) -> tuple[PatchedKernel, list[_External]]:
    """Return the kernel without its external references, and these references.

    Raises:
        PatchError: an s_getpc_b64 is used for internal and external addresses, or a variable is in no block.
    """
    fields: list[_External] = []
    words = np.frombuffer(patched.code, "<u4").copy()
    counters: set[int] = set()
    for literal in patched.literals:
        if literal.base == "memory":
            counters.add(literal.pc)
            fields += [(literal.low, False, ORIGINAL, literal.target), (literal.high, True, ORIGINAL, literal.target)]
    own = tuple(literal for literal in patched.literals if literal.base != "memory")
    for literal in own:
        if literal.pc in counters:
            raise PatchError(
                "an s_getpc_b64 is used for addresses inside and outside of the code",
                kernel=patched.name,
                offset=literal.address,
            )
    places = {name: (block.symbol, offset) for block in blocks for name, offset in block.places().items()}
    places[ORIGINAL] = ORIGINAL, 0
    for symbol, addend, high, distance, offsets in patched.symbols:
        if symbol not in places:
            raise PatchError(f"a hook refers to {symbol}, which the tool does not define", kernel=patched.name)
        name, start = places[symbol]
        if distance:
            counters.update((offsets - distance).tolist())
        fields += [(offset, high, name, start + addend - distance) for offset in offsets.tolist()]
    for counter in counters:
        words[counter // 4 - 1] = _zero_instead(int(words[counter // 4 - 1]), isa)
    # A field may belong to several references with the same address.
    fields = sorted(set(fields))
    if len({offset for offset, *_ in fields}) != len(fields):
        raise PatchError("one addition belongs to several PC-relative references", kernel=patched.name)
    return replace(patched, code=words.tobytes(), literals=own, symbols=()), fields


def _zero_instead(word: int, isa: Isa) -> int:
    """Return the instruction that writes 0 to the destination of the s_getpc_b64 `word`."""
    destination = 0x7F << 16
    getpc, zero = (
        int.from_bytes(isa.assemble(text).instructions.code, "little")
        for text in ("s_getpc_b64 s[0:1]", "s_mov_b64 s[0:1], 0")
    )
    if word & ~destination != getpc:
        raise PatchError(f"the word {word:#x} is not an s_getpc_b64", target=str(isa.target))
    return zero | word & destination
