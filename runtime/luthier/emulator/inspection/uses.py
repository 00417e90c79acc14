"""Memory uses of instructions for native code: the checks for races and uninitialised reads need them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode, Zeros, own_zeros
from luthier.emulator.inspection.guards import guards
from luthier.emulator.inspection.half_masks import loses_half
from luthier.emulator.inspection.waiting import waits
from luthier.isa.access_kinds import ACCESSES, CACHES, WAITS_FOR_STORES, AccessKind, kind_in_lds, kind_of
from luthier.isa.targets import Target

_BITS = {
    AccessKind.READ: layout.USE_READS,
    AccessKind.WRITE: layout.USE_WRITES,
    AccessKind.ATOMIC: layout.USE_READS | layout.USE_WRITES,
}

_PLAIN = re.compile(r"2st64|read2|2addr|b96|b128")
"""Parts of mnemonics of LDS loads that cannot be atomic loads: of several addresses, or of more than 64 bits."""

_COMPARES = re.compile(r"cmpswap|cmpst|cmpstore")
"""Parts of mnemonics of atomics that compare before they store."""
_WIDE = re.compile(r"\bsc1\b|SCOPE_(DEV|SYS)|^buffer_(wbinvl1|gl1_inv)")
"""Parts of texts of cache instructions that are not only for the work-group."""


class RegisterUses:
    """Table of memory uses by record of a code, as bits such as `layout.USE_READS`; a `Watcher` of the code.

    Args:
        zeros: allocates the array that native code reads.
        ordered: whether races are looked for; otherwise there is nothing about the order of accesses, which takes long.
    """

    def __init__(self, code: DecodedCode, zeros: Zeros, *, ordered: bool = True) -> None:
        self._code, self._zeros, self._ordered = code, zeros, ordered
        self.table: NDArray[np.uint16] = zeros(code.count + 1, np.uint16)

    def fill(self, records: Iterable[int]) -> None:
        """Add the uses of these records."""
        if self._code.count >= len(self.table):
            table = self._zeros(self._code.count + 1, np.uint16)
            table[: len(self.table)] = self.table
            self.table = table
        for record in records:
            self.table[record] = self._use(record)

    def forget(self, records: Iterable[int]) -> None:
        """Forget these records after their instructions were replaced."""
        for record in records:
            self.table[record] = 0

    def _use(self, record: int) -> int:
        place = self._code.locate(record)
        if place is None or place[0].opcode[place[1]] < 0:
            return 0
        part, position = place
        opcode = self._code.isa.opcode(int(part.opcode[position]))
        target = self._code.isa.target.target
        if self._ordered and (opcode.mnemonic.startswith(WAITS_FOR_STORES) or CACHES.match(opcode.mnemonic)):
            return fence_of(target, self._code.isa.text(part, position))
        if not opcode.mnemonic.startswith(ACCESSES):
            return 0
        if not self._ordered:
            return use_of(opcode.mnemonic, "_RTN" in opcode.name, "")
        text = self._code.isa.text(part, position)
        use = use_of(opcode.mnemonic, "_RTN" in opcode.name, text)
        if kind_of(opcode.mnemonic) is AccessKind.ATOMIC or use & layout.USE_COHERENT:
            use |= layout.USE_NARROW * is_narrow(target, text)
        if not use & layout.USE_COHERENT and waits(self._code.isa, part, position):
            use |= layout.USE_COHERENT | layout.USE_COHERENT << layout.USE_LDS_SHIFT
            use |= layout.USE_NARROW * ("glc" not in text.split())
        elif guards(self._code.isa, part, position):
            use |= layout.USE_GUARDS << layout.USE_LDS_SHIFT
        return use


@lru_cache(1 << 14)
def use_of(mnemonic: str, returns: bool, text: str) -> int:
    """Return the uses of a memory instruction: bits such as `layout.USE_READS`, those for LDS above.

    Args:
        returns: whether an atomic returns the old value.
    """
    more = layout.USE_RETURNS * returns | layout.USE_COHERENT * is_coherent(text)
    more |= layout.USE_PLAIN * bool(_PLAIN.search(mnemonic)) | layout.USE_LOCKS * bool(_COMPARES.search(mnemonic))
    in_lds = _BITS[kind_in_lds(mnemonic)]
    return _BITS[kind_of(mnemonic)] | more | (in_lds | more) << layout.USE_LDS_SHIFT


def is_narrow(target: Target, text: str) -> bool:
    """Return whether an atomic access of memory is limited to its own work-group.

    False on targets whose atomics have no scope, and on targets with clusters: there the next larger scope is the
    cluster, which may contain all work-groups that use the memory.
    """
    scopes = (target.device_scope, "scope:SCOPE_SYS")
    has_clusters = target.launch_ttmps is not None and target.launch_ttmps.cluster is not None
    return bool(target.device_scope) and not has_clusters and not any(scope in text for scope in scopes)


def is_coherent(text: str) -> bool:
    """Return whether other work-groups see an access, like those of atomic and volatile operations.

    LLVM marks them (AMDGPUUsage, "Memory Model") with ``glc`` on loads up to GFX11, with ``sc1`` on loads and stores on
    GFX940, with a scope from GFX12 on. Nontemporal accesses also have ``slc``.
    """
    words = text.replace(",", " ").split()
    return ("glc" in words and "slc" not in words) or "sc1" in words or any(word.startswith("scope:") for word in words)


@lru_cache
def _wait_for_stores(target: Target) -> re.Pattern[str] | None:
    """Return what the beginnings of texts of waits for stores match; None if they are not known."""
    if not target.release_fence:
        return None
    name, _, counter = target.release_fence[-1].partition(" ")
    counters = r" (.*vmcnt\(|0(x0)?$)" if counter.startswith("vmcnt(") else ""  # of the several that it may wait for
    return re.compile(f"{name}{counters}|s_wait_idle")


@lru_cache(1 << 10)
def fence_of(target: Target, text: str) -> int:
    """Return what an instruction does as part of a fence: bits such as `layout.FENCE_WAITS`.

    Any number of outstanding operations counts as none: the wait may be for older stores.
    """
    if text.startswith("s_wait"):
        wait = _wait_for_stores(target)
        return layout.FENCE_WAITS * bool(wait and wait.match(text))
    name, is_wide = text.partition(" ")[0], bool(_WIDE.search(text))
    if "_inv" not in name and "wbinv" not in name:
        # Compilers leave out the wait behind it if nothing but it can be outstanding.
        has_waited = len(target.release_fence) > 1
        return (layout.FENCE_WRITES_BACK | layout.FENCE_WAITS * has_waited) * is_wide
    use = layout.FENCE_FAR * is_wide | layout.FENCE_NEAR * ("gl1" not in name)
    return use | layout.FENCE_WRITES_BACK * (is_wide and name == "global_wbinv")


class LaneUses(RegisterUses):
    """`RegisterUses` that also has `layout.USE_HALF`."""

    def _use(self, record: int) -> int:
        place = self._code.locate(record)
        if place is None or place[0].opcode[place[1]] < 0:
            return 0
        return super()._use(record) | layout.USE_HALF * loses_half(self._code.isa, *place)


def uses_of(code: DecodedCode) -> int:
    """Return the address of the memory uses of a code (`uses` of `layout.PLAN`)."""
    return int(watched_uses(code, own_zeros).table.ctypes.data)


def watched_uses(code: DecodedCode, zeros: Zeros, *, ordered: bool = True) -> RegisterUses:
    """Return the uses of a code, with those that its sources of undefined values need.

    Args:
        ordered: as for `RegisterUses`.
    """
    kind = LaneUses if code.undefined & layout.LANE_VALUES else RegisterUses
    return code.watcher(kind, lambda: kind(code, zeros, ordered=ordered))
