"""Registers that a kernel may read before it writes them, of those that its launch does not set.

Other registers are never read while they are undefined. So the native executor tracks undefined values in registers
only where this module finds such registers, or where a wave loads undefined values. Lanes that are not launched are
left out; in launches with such lanes the executor tracks all registers.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.errors import LuthierError
from luthier.isa import registers as r
from luthier.isa.access_kinds import mnemonic_at
from luthier.lifting.instructions.effects import effect_table, unit_bytes
from luthier.lifting.live import LivePoints
from luthier.lifting.model import LiftedKernel
from luthier.objects import CodeObject, Kernel

_LDS_WITHOUT_M0 = re.compile(r"ds_(?!gws_|append|consume|ordered|direct|param|.*(addtid|_m0))")
"""Operations on LDS of which LLVM says that they read M0: they do so before GFX9 alone."""


def early_registers(object: CodeObject, kernel: Kernel, given_sgprs: int) -> list[int] | None:
    """Return the offsets in a wave of registers that the kernel may read before it writes them.

    Args:
        given_sgprs: registers from s0 on that the launch sets.

    Returns:
        None if any register may be, because the kernel's code is not known entirely.
    """
    from luthier.lifting.lifter import lift  # only checks of undefined values need it

    try:
        lifted = lift(object, kernel.name)
    except LuthierError:
        return None
    entries = [lifted.index_at(address) for address in lifted.hardware_entries]
    if any(entry is None for entry in entries):
        return None
    # Liveness leaves out what registers hold that nothing has written, unless inserted code may have touched them.
    native = lifted.flow.liveness(unit_bytes((1 << r.UNIT_LIMIT) - 1))
    blocks = np.array([lifted.block_of[entry] for entry in entries if entry is not None], np.int32)
    points = LivePoints(*native.columns(blocks, np.zeros(len(blocks), np.int32)))
    units = functools.reduce(operator.or_, (points[index].all_bits for index in range(len(points))))
    units &= _with_shadow(kernel) & ~_given(kernel, given_sgprs)
    if units & 1 << r.M0 and not _reads_m0(lifted):
        units &= ~(1 << r.M0)
    return [_offset(unit, kernel.wave_size) for unit in r.UnitSet(units)]


def _with_shadow(kernel: Kernel) -> int:
    """Return the units in which undefined values are tracked, of those that the kernel has.

    Code that names others faults.
    """
    descriptor = kernel.descriptor
    vgprs = min(kernel.descriptor.target.addressable_vgprs, max(descriptor.vgprs, 1))
    scalars = (1 << layout.SCALARS // 4) - 1 | 1 << r.SCC
    return scalars | ((1 << vgprs) - 1) << r.VGPR_FIRST | ((1 << descriptor.agprs) - 1) << r.AGPR_FIRST


def _given(kernel: Kernel, given_sgprs: int) -> int:
    """Return the units that a launch sets (`native/executor/register_shadow.cpp`)."""
    descriptor = kernel.descriptor
    target = descriptor.target
    ids = 1 if target.packed_work_item_ids else min(descriptor.enable_vgpr_workitem_id, 2) + 1
    scalars = (1 << given_sgprs) - 1 | 3 << r.FLAT_SCRATCH_SGPR | r.EXEC_MASK
    return scalars | ((1 << len(r.TTMPS)) - 1) << r.TTMPS.start | ((1 << ids) - 1) << r.VGPR_FIRST


def _reads_m0(lifted: LiftedKernel) -> bool:
    """Return whether an instruction reads M0 on targets where most operations on LDS do not."""
    table, columns = effect_table(lifted.isa), lifted.columns
    return any(
        table.of(columns, index).reads >> r.M0 & 1
        for index in np.flatnonzero(lifted.reached).tolist()
        if not _LDS_WITHOUT_M0.match(mnemonic_at(lifted.isa, lifted.code, index))
    )


def _offset(unit: int, wave_size: int) -> int:
    """Return the offset in a wave of a unit."""
    if unit >= r.AGPR_FIRST:
        return layout.agprs(wave_size) + 4 * wave_size * (unit - r.AGPR_FIRST)
    if unit >= r.VGPR_FIRST:
        return layout.VECTORS + 4 * wave_size * (unit - r.VGPR_FIRST)
    return layout.UNIT_OFFSETS.get(unit, 4 * unit)


def plan_fields(early: Sequence[int] | None, place: NDArray[np.uint32], fields: Mapping[str, int]) -> dict[str, int]:
    """Return the fields of `layout.PLAN` that depend on such registers.

    Args:
        early: `early_registers`.
        place: memory for at least one number and all of these.
        fields: those of the plan so far.
    """
    if early is None:
        return {}
    if not early:
        return {name: fields[name] | layout.ALL_DEFINED for name in ("key", "stepping")} | {"early": place.ctypes.data}
    place[: len(early)] = early
    return {"early": place.ctypes.data, "early_count": len(early)}
