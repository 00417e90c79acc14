"""Float atomics of fine-grained memory: which of them hardware may leave out, and why."""

from __future__ import annotations

from luthier.arch.target import Target
from luthier.isa.access_kinds import is_float_atomic
from luthier.wire.messages import FINE_DEVICE, FINE_HOST, FINE_SHARED

_MEMORY = {FINE_HOST: "pinned host", FINE_DEVICE: "device", FINE_SHARED: "managed or registered"}
_OF_SYSTEM = ("sc1", "scope:SCOPE_SYS")
"""Modifiers of atomics with the scope of the whole system (AMDGPUUsage, "Memory Model", GFX942 and GFX12)."""


def is_unsafe(target: Target, instruction: str) -> bool:
    """Return whether the hardware may leave out an atomic, given as text, if its memory is fine-grained."""
    mnemonic, _, operands = instruction.partition(" ")
    if not is_float_atomic(mnemonic) or target.fine_grained_scope == "system":
        return False
    return not target.fine_grained_scope or not set(_OF_SYSTEM).isdisjoint(operands.split())


def why_unsafe(target: Target, memory: int) -> str:
    """Return why an atomic is unsafe.

    Args:
        memory: kind of its memory: `luthier.wire.messages.FINE_HOST` and the others.
    """
    scope = " of the scope system" if target.fine_grained_scope else ""
    kind = _MEMORY.get(memory, "unknown")
    return f"{target.name} may leave out a float atomic{scope} on fine-grained {kind} memory, without an error"
