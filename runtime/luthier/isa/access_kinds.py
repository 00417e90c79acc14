"""Kinds of access of instructions to memory and to LDS, by mnemonic."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache

from luthier.isa.instructions import InstructionArray
from luthier.isa.mc import Isa

ACCESSES = (
    *("ds_", "lds_", "flat_", "global_", "cluster_", "buffer_", "tbuffer_", "tensor_", "image_"),
    *("s_load", "s_buffer_load", "s_store", "s_buffer_store", "s_atomic", "s_buffer_atomic"),
)
"""Prefixes of instructions that access memory shared with other lanes."""
_MEMORY = (*ACCESSES, "scratch_")
CACHES = re.compile(r"(buffer|global)_(gl[01]_|wb|inv)")
"""Prefixes of instructions that write back or invalidate caches, as fences of atomic loads do."""
_FLOAT_ATOMIC = re.compile(
    r"(flat|global|buffer)_atomic_(f(min|max)|(add|min|max)_f(32|64)|(min|max)_num_f(32|64)|pk_add_b?f16)"
)
"""Beginnings of the names of atomics that compute floats in memory."""
WAITS_FOR_STORES = ("s_waitcnt", "s_wait_storecnt", "s_wait_idle")
"""Prefixes of waits that may be for stores."""


class AccessKind(IntEnum):
    """Kind of access of an instruction to memory."""

    READ = 0
    WRITE = 1
    ATOMIC = 2


@cache
def kind_of(mnemonic: str) -> AccessKind:
    """Return the kind of access of a memory instruction; for loads into LDS see `kind_in_lds`, too."""
    if "atomic" in mnemonic:
        return AccessKind.ATOMIC
    if "load" in mnemonic or "read" in mnemonic:
        return AccessKind.READ
    is_store = mnemonic.startswith(("ds_write", "ds_store")) if mnemonic.startswith("ds_") else "store" in mnemonic
    return AccessKind.WRITE if is_store and "xchg" not in mnemonic else AccessKind.ATOMIC


def kind_in_lds(mnemonic: str) -> AccessKind:
    """Return the kind of access to LDS of a memory instruction."""
    kind = kind_of(mnemonic)
    if kind is AccessKind.READ and mnemonic.startswith(("global_", "scratch_", "buffer_", "cluster_", "tensor_")):
        return AccessKind.WRITE  # a load whose destination is LDS
    return AccessKind.READ if mnemonic.startswith("buffer_store_lds") or "_from_lds" in mnemonic else kind


def is_float_atomic(mnemonic: str) -> bool:
    """Return whether an instruction computes floats in memory: sums, minima or maxima."""
    return bool(_FLOAT_ATOMIC.match(mnemonic))


def is_memory(mnemonic: str) -> bool:
    """Return whether an instruction accesses memory, LDS or scratch."""
    return mnemonic.startswith(_MEMORY) and not CACHES.match(mnemonic)


def mnemonic_at(isa: Isa, code: InstructionArray, index: int) -> str:
    """Return the mnemonic of an instruction; empty if the bytes are undecodable."""
    opcode = int(code.opcode[index])
    return isa.opcode(opcode).mnemonic if opcode >= 0 else ""
