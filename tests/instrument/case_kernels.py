"""Kernels of the text cases: what is around a case's source, assembling, and running them.

A kernel is called `k`; its one argument is a buffer of eight 32-bit values a lane. It starts with ``begin``, ends with
s_endpgm, and stores with ``put register, number``. What differs among generations is in macros.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from assembly import assembled, kernel_text
from luthier.devices import open_device
from luthier.objects import CodeObject
from numpy.typing import NDArray

VALUES = 8
"""A lane, in the buffer."""

MACROS = """
.set generation, .amdgcn.gfx_generation_number
.macro func name
  .globl \\name
  .protected \\name
  .p2align 8
  .type \\name,@function
\\name:
.endm
.macro endfunc name
  .size \\name, .-\\name
.endm
.macro begin  // s[4:5] is the buffer, v0 the work-item, v1 its place in the buffer
  .if generation >= 11
    s_load_b64 s[4:5], s[0:1], 0x0
  .else
    s_load_dwordx2 s[4:5], s[0:1], 0x0
  .endif
  .if generation >= 12
    s_wait_kmcnt 0x0
  .else
    s_waitcnt lgkmcnt(0)
  .endif
  v_lshlrev_b32_e32 v1, 2, v0
.endm
.macro put register, number
  .if generation >= 11
    global_store_b32 v1, \\register, s[4:5] offset:256*\\number
  .else
    global_store_dword v1, \\register, s[4:5] offset:256*\\number
  .endif
.endm
.macro address first, second, symbol  // of \\symbol, by the program counter
  s_getpc_b64 s[\\first:\\second]
  .if generation >= 12
    s_sext_i32_i16 s\\second, s\\second
    s_add_co_u32 s\\first, s\\first, \\symbol@rel32@lo+8
    s_add_co_ci_u32 s\\second, s\\second, \\symbol@rel32@hi+16
  .else
    s_add_u32 s\\first, s\\first, \\symbol@rel32@lo+4
    s_addc_u32 s\\second, s\\second, \\symbol@rel32@hi+12
  .endif
.endm
"""


def assemble(
    target: str, source: str, wave: int, *, vgprs: int, sgprs: int, agprs: int, workgroup: int, descriptor: str
) -> CodeObject:
    """The code object of a case.

    Args:
        target: processor.
        source: functions, `k` among them.
        wave: lanes.
        vgprs, sgprs, agprs: registers the kernel declares.
        workgroup: lanes of the largest work-group it may be launched with.
        descriptor: further directives ``name value; …`` of `.amdhsa_kernel`, without their prefix.
    """
    text = kernel_text(
        MACROS + source,
        target,
        wave_size=wave,
        sgprs=sgprs,
        vgprs=vgprs,
        agprs=agprs,
        workgroup=workgroup,
        directives=dict(one.split() for one in filter(None, descriptor.split("; "))),
    )
    return assembled(text, target, wave_size=wave)


def run(
    target: str, data: bytes, *, groups: int, lanes: int, variables: Iterable[str] = ()
) -> tuple[NDArray[np.uint32], dict[str, int]]:
    """Launch `k` on the emulated device.

    Args:
        target: processor.
        data: the code object.
        groups: work-groups. They share the buffer, so they must agree on what they store.
        lanes: of each.
        variables: names of variables whose values are wanted.

    Returns:
        The buffer, and the variables.
    """
    module = open_device(f"emu:{target}", threads=1).load(data)
    buffer = np.zeros(VALUES * 64, np.uint32)
    module.kernel("k").launch(buffer, grid=groups, block=lanes)
    return buffer.reshape(VALUES, 64), {
        name: int.from_bytes(module.variable(name).read(), "little") for name in variables
    }
