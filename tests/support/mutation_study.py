"""Study of mutants: the results of the checks against each other and against what mutants compute.

A mutant is *flagged* by the check of all paths or by the one of the launch, or *redundant*: neither finds anything and
what the kernel writes stays the same. Whatever else comes out is a disagreement:

- the launch finds what is on no path, or other hazards where there is only one path;
- a kernel writes something else, though nothing is found: outstanding registers hold poison;
- a wait or wait state that the check of the original calls unneeded is flagged when it is removed, or wait states that
  it calls needed are not.

What is found on all paths and not by the launch is no disagreement if it is known why (`mutation_ways`): the launch
does not reach all blocks on the path of the finding; no wave takes such a path as a whole; or lanes differ.

Each kernel is loaded once. A mutant is written over the original's instructions where they are loaded, and only its
block is checked again on all paths.
"""

from __future__ import annotations

import json
import os
import random
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import luthier
import numpy as np
from effort import EVERYTHING
from luthier.emulator import CheckWarning, EmulatedDevice
from luthier.errors import EmulationError
from luthier.hazards.wait_counters import WaitFinding, check_waits
from luthier.hazards.wait_counters.steps import WaitSteps as WaitSteps
from luthier.hazards.wait_states import HazardFinding, check_hazards
from luthier.hazards.wait_states.steps import HazardSteps as HazardSteps
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject
from luthier.verify.launch_plan import LaunchPlan
from mutation import Mutant, mutants
from mutation_ways import OTHER_LANES, OTHER_WAY, UNEXPLAINED, Ways

FOLDER_OF_RATES = os.environ.get("LUTHIER_MUTANTS", "")
"""Folder for the counts, for ``benchmarks/mutation_rates.py``."""
MOST, FEW = int(os.environ.get("LUTHIER_MUTANTS_MOST", "40")), 6
"""Mutants of one kernel that are judged, under `make test-all` and else."""
NOT_EXECUTED = "not executed"
COUNTED = (
    *("all", "mutants", "static", "dynamic", "changed", "redundant"),
    *(NOT_EXECUTED, OTHER_WAY, OTHER_LANES, "disagreeing"),
)


@dataclass(frozen=True)
class Outcome:
    """A launch: what it wrote, None if it failed, and what the checks found."""

    written: bytes | None
    executed: frozenset[int]
    """Addresses; none if it failed."""
    found: bool
    hazards: frozenset[int]
    """Addresses of consumers."""


class Launches:
    """Launches of a kernel as it is and of its mutants."""

    def __init__(self, object: CodeObject, plan: LaunchPlan) -> None:
        device = luthier.open_device(f"emu:{object.target.target.name}", check=["waits", "hazards"], threads=1)
        assert isinstance(device, EmulatedDevice)
        device.step_limit = 4
        self._device, self._plan = device, plan
        self._module = device.load(object)
        self._kernel = self._module.kernel(plan.kernel)
        self._loaded = [(one.view(), one.view().copy()) for one in self._module.image.allocations]
        self.original = self._launch()

    def of(self, mutant: Mutant) -> Outcome:
        """Return the outcome of a mutant, and restore the original."""
        for view, as_loaded in self._loaded:
            view[:] = as_loaded
        self._module.rewrite(mutant.address, mutant.data)
        try:
            return self._launch()
        finally:
            self._module.rewrite(mutant.address, mutant.before)

    def _launch(self) -> Outcome:
        plan, arguments = self._plan, self._plan.materialise()
        written, executed = None, frozenset[int]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckWarning)
            try:
                stats = self._kernel.launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
            except EmulationError:
                pass
            else:
                written = b"".join(one.tobytes() for one in arguments if isinstance(one, np.ndarray))
                executed = frozenset(stats.by_address.addresses.tolist())
        findings = self._device.findings
        return Outcome(
            written, executed, bool(findings), frozenset(one.offset for one in findings if one.check == "hazards")
        )


class Static:
    """Findings on all paths of a kernel.

    Args:
        waits: as the check of waits sees it; None: nothing is to be found.
        hazards: the same.
    """

    def __init__(self, lifted: LiftedRepresentation, waits: WaitSteps | None, hazards: HazardSteps | None) -> None:
        self._lifted, self._hazards = lifted, hazards
        self.waits = () if waits is None else check_waits(lifted, unneeded=False, steps=waits).findings
        self.hazards: frozenset[int] = frozenset()
        """Addresses of consumers."""
        if hazards is not None:
            report = check_hazards(lifted, unneeded=False, searches=0, steps=hazards)
            self.hazards = frozenset(place.address for place, _ in report.consumers)

    @classmethod
    def of(cls, lifted: LiftedRepresentation) -> Static:
        """Return the findings with nothing known before."""
        return cls(lifted, WaitSteps(lifted), HazardSteps(lifted))

    @property
    def flagged(self) -> bool:
        """Return whether anything is found."""
        return bool(self.waits or self.hazards)

    @cached_property
    def findings(self) -> Sequence[WaitFinding | HazardFinding]:
        """Return the findings with their paths."""
        if not self.hazards:
            return self.waits
        return (*self.waits, *check_hazards(self._lifted, unneeded=False, steps=self._hazards).findings)

    def is_met(self, executed: frozenset[int]) -> bool:
        """Return whether a launch reaches all places of some finding: producer, blocks between, consumer."""
        if executed.isdisjoint({*self.hazards, *(one.consumer.address for one in self.waits)}):
            return False
        for finding in self.findings:
            places = {*finding.path[1:], finding.consumer.address}
            if finding.producer is not None:
                places.add(finding.producer.address)
            if places <= executed:
                return True
        return False


def chosen(made: list[Mutant], name: str) -> list[Mutant]:
    """Return a part of many, under `make test` a small one, the same each time."""
    most = MOST if EVERYTHING else FEW
    return made if len(made) <= most else random.Random(f"{name} 0").sample(made, most)


class Study:
    """The judge of a kernel's mutants.

    Raises:
        AssertionError: something is found in the original.
    """

    def __init__(self, object: CodeObject, plan: LaunchPlan) -> None:
        self._object, self._plan = object, plan
        self.lifted = lift(object, plan.kernel)
        self._waits, self._hazards = WaitSteps(self.lifted), HazardSteps(self.lifted)
        self._every_hazard = HazardSteps(self.lifted, everything=True)
        waits = check_waits(self.lifted, steps=self._waits)
        hazards = check_hazards(self.lifted, steps=self._hazards)
        assert not waits.findings
        assert not hazards.findings
        self._launches = Launches(object, plan)
        assert self._launches.original.written is not None
        assert not self._launches.original.found
        self._unneeded = {one.place.address for one in waits.unneeded}
        self._enough = {one.place.address: one.needed for one in hazards.unneeded}

    @cached_property
    def _ways(self) -> Ways:
        return Ways(self._object, self._plan, self.lifted)

    def static(self, mutant: Mutant) -> tuple[Static, LiftedRepresentation, WaitSteps]:
        """Return what is found on all paths of a mutant, its lifted kernel, and its steps."""
        lifted, block = mutant.lifted(self.lifted), mutant.block
        waits, hazards = self._waits.changed(lifted, block), self._every_hazard.changed(lifted, block)
        # What sees no change finds nothing, as in the original.
        same_waits = waits.of(block) == self._waits.of(block)
        same_hazards = hazards.of(block) == self._every_hazard.of(block)
        same_hazards = same_hazards and hazards.length(block) == self._hazards.length(block)
        shared = self._hazards.changed(lifted, block)
        static = Static(lifted, None if same_waits else waits, None if same_hazards else shared)
        return static, lifted, waits

    def launched(self, mutant: Mutant) -> Outcome:
        """Return the outcome of a mutant's launch."""
        return self._launches.of(mutant)

    def judge(self, mutant: Mutant) -> tuple[Counter[str], str]:
        """Return what is counted for a mutant, and what is wrong."""
        static, lifted, waits = self.static(mutant)
        original, after = self._launches.original, self.launched(mutant)
        flagged, differs = static.flagged, after.written != original.written
        seen = Counter(
            mutants=1,
            static=flagged,
            dynamic=after.found,
            changed=differs,
            redundant=not flagged and not after.found and not differs,
        )
        wrong = ""
        if after.found and not flagged:
            wrong = "the launch finds what is on no path"
        elif differs and not after.found:
            wrong = "it writes something else and nothing is found"
        elif flagged and self._called_unneeded(mutant):
            wrong = "what was called unneeded is needed"
        elif mutant.states and not static.hazards and not self._called_unneeded(mutant):
            wrong = "wait states that were called needed are not"
        elif len(lifted.blocks) == 1 and after.hazards != static.hazards:
            wrong = "other hazards on its only path"
        elif flagged and not after.found:
            if not static.is_met(after.executed):
                seen[NOT_EXECUTED] += 1
            elif (reason := self._ways.reason(lifted, waits)) != UNEXPLAINED:
                seen[reason] += 1
            else:
                wrong = "the launch does not find what is on its way"
        return seen, wrong

    def _called_unneeded(self, mutant: Mutant) -> bool:
        if mutant.kind == "wait":
            return mutant.removed and mutant.address in self._unneeded
        return mutant.states is not None and self._enough.get(mutant.address, mutant.states + 1) <= mutant.states


def study(object: CodeObject, plan: LaunchPlan, name: str) -> Counter[str]:
    """Judge mutants of a kernel.

    Args:
        name: name of the case, by which some of many mutants are chosen.

    Raises:
        AssertionError: there is a disagreement, or something is found in the original.
    """
    of = Study(object, plan)
    made = list(mutants(object, of.lifted))
    seen: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    seen["all"] = len(made)
    problems = []
    for mutant in chosen(made, name):
        counted, wrong = of.judge(mutant)
        seen.update(counted)
        if wrong:
            seen["disagreeing"] += 1
            problems.append(f"{plan.kernel} at {mutant.address:#x}, {mutant.kind} {mutant.what}: {wrong}")
    assert not problems, "\n".join(problems)
    return seen


def counted(family: str, name: str, object: CodeObject, plan: LaunchPlan, case: str = "") -> Counter[str]:
    """Return the counts of `study`, kept in a file where that is asked for.

    What an earlier run kept is not judged again.

    Args:
        name: name in its family.
        case: as `study` takes it; empty: the same.
    """
    path = Path(FOLDER_OF_RATES) / (re.sub(r"[^\w.-]+", "_", f"{family} {name}") + ".json")
    if FOLDER_OF_RATES and path.exists():
        rates = json.loads(path.read_text())
        return Counter({key: rates[key] for key in COUNTED})
    seen = study(object, plan, case or name)
    if FOLDER_OF_RATES:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps({"family": family, "name": name, **seen}))
        part.rename(path)
    return seen
