"""Wait states where a payload meets the application's code.

Inside the application's code and inside a payload the compiler has placed what the hardware does not interlock. At
the seam nobody has:
these rules stand in for it, generously. Sources: the ISA documents' tables of required wait states (GFX9 chapter
4.5, "Manually Inserted
Wait States"; MI200 and MI300, "Dependency Resolution"). The emulated device has no hazards: these have never been
timed on hardware.
"""

from __future__ import annotations

import functools

import numpy as np

from luthier.lifting import LiftedRepresentation
from luthier.mc import InstructionFlag
from luthier.targets import Target

MATRIX_WAIT_STATES = 19
"""Most that a vector write may have to wait for a matrix instruction still reading or writing its registers."""


SKIP_WAIT_STATES = 2
"""Between s_setvskip and a vector instruction, as after s_setreg of MODE.vskip."""


def seam(lifted: LiftedRepresentation, point: int, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Assembly to run before and after a payload that starts before instruction `point`.

    Args:
        index: the instruction whose block the payload is in: `point`, or the one before it.
    """
    indexed = lifted.index_mode.get(point)
    if indexed is None:
        return waits_before_payload(lifted, point, index), ()
    # M0 holds the index and the mask. It is as it was when the payload ends, or dead: turning the mode on again with
    # what is in it changes nothing.
    on = f"s_set_gpr_idx_on m0, {indexed.known}"
    return ("s_set_gpr_idx_off", *waits_before_payload(lifted, point, index)), (on,)


def waits_before_payload(lifted: LiftedRepresentation, point: int, index: int) -> tuple[str, ...]:
    """What a payload that starts before instruction `point` has to wait for; `index` as in `seam`."""
    target = lifted.target
    if target.major >= 11:
        # SGPRs that vector instructions still read as lane masks must not be overwritten under them.
        return ("s_waitcnt_depctr 0x0" if target.major == 11 else "s_wait_alu 0x0",)
    if target.major != 9:
        return ()
    block = lifted.blocks[lifted.block_of[index]]
    if _has_matrix(lifted):
        first = max(block.first, point - MATRIX_WAIT_STATES)
        near = bool((lifted.code.flags[first:point] & InstructionFlag.MATRIX).any())
        if near or point - block.first < MATRIX_WAIT_STATES:
            return ("s_nop 15", "s_nop 2")
    if lifted.skipped and any(at in lifted.skipped for at in range(max(block.first, point - SKIP_WAIT_STATES), point)):
        return (f"s_nop {SKIP_WAIT_STATES - 1}",)
    return ()


def waits_after_readlane(target: Target) -> list[str]:
    """Assembly after a payload that ends by reading SGPRs back from vector lanes, which the application may use as
    addresses."""
    return ["s_nop 4"] if target.major == 9 else []


def waits_around_outputs(target: Target) -> tuple[list[str], list[str]]:
    """Assembly before and after a payload gives registers new values: they come from vector instructions that SALU
    instructions copy, and the application may use them as lane selectors, addresses, or through DPP."""
    if target.major >= 11:
        wait = ["s_waitcnt_depctr 0x0" if target.major == 11 else "s_wait_alu 0x0"]
        return wait, wait
    return [], ["s_nop 4"] if target.major == 9 else []


@functools.lru_cache(maxsize=1)  # it keeps the kernel in memory
def _has_matrix(lifted: LiftedRepresentation) -> bool:
    return bool((lifted.code.flags & InstructionFlag.MATRIX)[np.array(lifted.block_of) >= 0].any())
