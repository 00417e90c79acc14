"""Origins of undefined values and of NaN: what native code has recorded, narrowed down by the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from luthier.findings.calls import AllocationSites, first_call
from luthier.findings.collector import KernelCode
from luthier.findings.finding import NearbyAllocation, Origin, Other
from luthier.wire.messages import ORIGIN_LDS, ORIGIN_MADE, ORIGIN_MEMORY, ORIGIN_SCRATCH, OriginSource, OriginStore
from luthier.wire.structures import ProtocolError

_NOT_WRITTEN = {
    ORIGIN_LDS: "LDS that its work-group never wrote",
    ORIGIN_SCRATCH: "private memory that was never written: a local variable",
}
_OPERATION = "an operation that makes NaN from other numbers"
_REGISTER = "a register that was never written: a local variable"


def origin_of(
    stores: Sequence[OriginStore],
    code_of: Callable[[int], KernelCode],
    sites_of: Callable[[OriginSource], AllocationSites],
    *,
    is_nan: bool = False,
) -> Origin | None:
    """Return from where an undefined value or NaN comes; None if nothing is known.

    Of several loads that may have given it, one of memory that was never written, or an operation that makes NaN, is
    taken, otherwise the first in the list.

    Args:
        stores: as in `luthier.wire.device_requests.Found`.
        code_of: returns the code of a kernel by the number of its plan.
        sites_of: returns what is known of the allocation that a load has read.
        is_nan: whether the value is NaN, which may also come from where nothing is known, such as the host.

    Raises:
        ProtocolError: the stores are malformed.
    """
    if not stores:
        return None
    copies: list[Other] = []
    loaded: Other | None = None
    at, is_certain, followed = stores[0], True, {0}
    while True:
        sources = list(at.sources)
        if is_nan and not sources:
            return None
        if at.kernel:
            used = code_of(at.kernel).used_loads(at.record, {source.record for source in sources})
            if is_nan and used is not None and not used:
                return None
            sources = [source for source in sources if used is not None and source.record in used] or sources
            is_certain &= at.is_whole and used is not None and len(sources) == len(used) < 2
        if not sources:
            return Origin(_REGISTER, tuple(copies), is_certain=is_certain, loaded=loaded) if at.is_whole else None
        source = min(sources, key=lambda each: each.store)
        step = _step(code_of(at.kernel), source.record, at.launch) if at.kernel else None
        if source.space == ORIGIN_MADE:
            # Not all of what the host and its copies write to memory is known.
            is_certain &= loaded is None
            return Origin(_OPERATION, tuple(copies), is_certain=is_certain, made=step, loaded=loaded)
        loaded = step if at is stores[0] else loaded
        if not source.store:
            origin = _of_memory(source, tuple(copies), sites_of(source), is_certain=is_certain)
            return msgspec.structs.replace(origin, loaded=loaded)
        if source.store >= len(stores) or source.store in followed:
            raise ProtocolError("the stores of an undefined value are malformed")
        followed.add(source.store)
        at = stores[source.store]
        if at.space != ORIGIN_SCRATCH:  # of which compilers make much use for local variables
            copies.insert(0, _step(code_of(at.kernel), at.record, at.launch))


def _step(code: KernelCode, record: int, launch: int) -> Other:
    """Return an instruction of a kernel, by its record."""
    return Other(code.object, *code.instruction(record), kernel=code.kernel, launch=launch)


def _of_memory(source: OriginSource, copies: tuple[Other, ...], sites: AllocationSites, *, is_certain: bool) -> Origin:
    if source.space not in (ORIGIN_MEMORY, *_NOT_WRITTEN):
        raise ProtocolError(f"an undefined value was in memory of unknown kind {source.space}")
    if source.space != ORIGIN_MEMORY:
        return Origin(_NOT_WRITTEN[source.space], copies, is_certain=is_certain)
    allocation = NearbyAllocation(source.base, source.extent, source.allocation, name=sites.name)
    place = f"byte {source.address - source.base} of {allocation.text}, which was never written"
    return Origin(place, copies, allocation, first_call(sites.allocated), is_certain)
