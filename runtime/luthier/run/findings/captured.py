"""Findings of captured launches: those of a program's, by replays."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.capture import Replayed
from luthier.capture.checking import Observed
from luthier.capture.replay import PreparedLaunch
from luthier.emulator import layout
from luthier.emulator.inspection.sighted import wanted
from luthier.run.findings.collector import Collector, Place, Running, place_of
from luthier.run.findings.finding import CHECKS, DECISIONS, OUTSIDE
from luthier.run.findings.floats import has_flow, looked_for


def replayed(launch: PreparedLaunch, collector: Collector, threads: int | None = None) -> Replayed:
    """Run a captured launch again, and give a collector what it does wrong.

    All of the captured memory counts as written, and as allocated to its last byte.

    Raises:
        AddressTaken: this process has something else where the program had its memory.
        LuthierError: the launch cannot be run.
    """
    checks = [check for check, kinds in CHECKS.items() if kinds & collector.kinds]
    bits = wanted(checks) | (layout.OBSERVE_UNWRITTEN if "init" in checks else 0)
    if floats := looked_for(collector.kinds):
        bits |= layout.OBSERVE_FLOATS | (layout.OBSERVE_FLOW if has_flow(collector.kinds) else 0)
    if DECISIONS & collector.kinds:
        bits |= layout.OBSERVE_UNDEFINED
    if OUTSIDE in collector.kinds:
        bits |= layout.OBSERVE_LDS
    observed = Observed(bits, floats) if bits else None
    done = launch.run(threads, observed=observed)
    number = launch.capture.manifest.number
    code = Running(launch.kernel.name, launch.object.name, lambda record: _place(launch, record))
    for seen in () if observed is None else observed.sightings:
        collector.add(0, replace(seen, launch=number), code)
    if done.fault is not None:
        record = None if done.fault.offset is None else launch.code.record_at(done.fault.offset)
        collector.add_fault(0, done.fault, code, record, number)
    return done


def _place(launch: PreparedLaunch, record: int) -> Place:
    address = launch.code.address_of(record)
    return place_of(address, launch.code.text(record), launch.object)
