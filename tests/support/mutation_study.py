"""What the checks say of mutants, against each other and against what mutants compute.

A mutant is *flagged* by the check of all paths or by the one of the launch, or *redundant*: neither finds anything and
what the kernel writes stays the same. Whatever else comes out is a disagreement:

- the launch finds what is on no path;
- a kernel writes something else, though nothing is found: outstanding registers hold poison;
- a wait or wait state that the check of the original calls unneeded is flagged when it is removed.

What is found on all paths and not by the launch is none: the launch goes another way. Where it comes to all blocks of
the way that the finding tells, `elsewhere` counts it: in other turns of a loop, or in other lanes.
"""

from __future__ import annotations

import json
import os
import random
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import luthier
import numpy as np
from effort import EVERYTHING, rotation
from luthier.emulator import CheckWarning, EmulatedDevice
from luthier.errors import EmulationError
from luthier.launch_plan import LaunchPlan
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.hazards import check_hazards
from luthier.lifting.waits import check_waits
from luthier.objects import CodeObject, load_object
from mutation import Mutant, mutants

FOLDER_OF_RATES = os.environ.get("LUTHIER_MUTANTS", "")
"""Where what was counted is left, for ``benchmarks/mutation_rates.py``."""
MOST, FEW = int(os.environ.get("LUTHIER_MUTANTS_MOST", "40")), 6
"""Mutants of one kernel that are judged, under `make test-all` and else."""
COUNTED = ("all", "mutants", "static", "dynamic", "changed", "redundant", "not executed", "elsewhere", "disagreeing")


class Outcome:
    """A launch: what it wrote, None if it failed, and what the checks found."""

    def __init__(self, object: CodeObject, plan: LaunchPlan) -> None:
        device = luthier.open_device(f"emu:{object.target.target.name}", check=["waits", "hazards"], threads=1)
        assert isinstance(device, EmulatedDevice)
        device.step_limit = 4
        arguments = plan.materialise()
        self.written: bytes | None = None
        self.executed: frozenset[int] = frozenset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckWarning)
            try:
                kernel = device.load(object).kernel(plan.kernel)
                stats = kernel.launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
            except EmulationError:
                pass
            else:
                self.written = b"".join(one.tobytes() for one in arguments if isinstance(one, np.ndarray))
                self.executed = frozenset(stats.by_address.addresses.tolist())
        self.found = bool(device.findings)


@dataclass(frozen=True)
class Static:
    """What is found on all paths of a kernel."""

    places: tuple[tuple[int | None, ...], ...]
    """Of each finding, addresses that a wave must come to: producer, blocks between, consumer."""

    @classmethod
    def of(cls, lifted: LiftedRepresentation) -> Static:
        found = (
            *check_waits(lifted, unneeded=False).findings,
            *check_hazards(lifted, unneeded=False).findings,
        )
        return cls(
            tuple(
                (None if one.producer is None else one.producer.address, *one.path[1:], one.consumer.address)
                for one in found
            )
        )

    def is_met(self, executed: frozenset[int]) -> bool:
        """Whether a launch comes to all places of some finding."""
        return any(all(place is None or place in executed for place in places) for places in self.places)


def chosen(made: list[Mutant], name: str) -> list[Mutant]:
    """Not all of many: under `make test` few, others on other days."""
    most = MOST if EVERYTHING else FEW
    return made if len(made) <= most else random.Random(f"{name} {0 if EVERYTHING else rotation()}").sample(made, most)


def study(object: CodeObject, plan: LaunchPlan, name: str) -> Counter[str]:
    """Judge mutants of a kernel.

    Args:
        name: of the case, by which some of many mutants are chosen.

    Raises:
        AssertionError: a disagreement, or something is found in the original.
    """
    lifted = lift(object, plan.kernel)
    waits, hazards = check_waits(lifted), check_hazards(lifted)
    assert not waits.findings
    assert not hazards.findings
    original = Outcome(object, plan)
    assert original.written is not None
    assert not original.found
    unneeded = {one.place.address for one in waits.unneeded}
    enough = {one.place.address: one.needed for one in hazards.unneeded}
    seen: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    problems = []
    made = list(mutants(object, lifted))
    seen["all"] = len(made)
    for mutant in chosen(made, name):
        changed = load_object(mutant.data)
        static = Static.of(mutant.lifted(lifted))
        pairs = static.places
        after = Outcome(changed, plan)
        differs = after.written != original.written
        said = mutant.address in unneeded if mutant.kind == "wait" and mutant.removed else False
        if mutant.kind == "nop" and mutant.address in enough:
            said = enough[mutant.address] <= mutant.states
        seen["mutants"] += 1
        seen["static"] += bool(pairs)
        seen["dynamic"] += after.found
        seen["changed"] += differs
        seen["redundant"] += not pairs and not after.found and not differs
        wrong = ""
        if after.found and not pairs:
            wrong = "the launch finds what is on no path"
        elif differs and not after.found:
            wrong = "it writes something else and nothing is found"
        elif said and pairs:
            wrong = "what was called unneeded is needed"
        elif pairs and not after.found:
            met = static.is_met(after.executed or original.executed)
            seen["elsewhere" if met else "not executed"] += 1
            if met and FOLDER_OF_RATES:
                print(f"{name}: elsewhere, {plan.kernel} at {mutant.address:#x}, {mutant.kind} {mutant.what}")
        if wrong:
            seen["disagreeing"] += 1
            problems.append(f"{plan.kernel} at {mutant.address:#x}, {mutant.kind} {mutant.what}: {wrong}")
    assert not problems, "\n".join(problems)
    return seen


def keep(family: str, name: str, seen: Counter[str]) -> None:
    """Leave what was counted, where that is asked for."""
    if FOLDER_OF_RATES:
        folder = Path(FOLDER_OF_RATES)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (re.sub(r"[^\w.-]+", "_", f"{family} {name}") + ".json")
        path.write_text(json.dumps({"family": family, "name": name, **seen}))
