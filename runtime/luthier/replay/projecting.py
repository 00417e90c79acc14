"""Projected times of captured launches: ``luthier project``."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from luthier.lifting import lift
from luthier.projection import LaunchWork, MachineModel, Projection, machine_named, measure_launch, project_on_each
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus

MOST_GROUPS = 16
"""Sampled work-groups of a launch, unless others are asked for."""


class ProjectedOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a capture with its projections on the job's machines, without those that cannot run it."""

    projections: tuple[Projection, ...] = ()
    work: LaunchWork | None = None
    """Only if the job keeps it."""


class Project(CaptureJob[ProjectedOutcome], frozen=True, kw_only=True):
    """Projection of a capture on machines.

    Args:
        machines: none: the machine that stands for the capture's processor.
        most_groups: as for `luthier.projection.measure`.
        keeps_work: the outcome has the launch's work.
    """

    answers: ClassVar[type[Struct]] = ProjectedOutcome
    machines: tuple[MachineModel, ...] = ()
    most_groups: int = MOST_GROUPS
    keeps_work: bool = False

    def run(self) -> ProjectedOutcome:
        """Run the launch in this process."""
        capture = self.capture()
        launch = self.launch(capture)
        target = launch.device.target
        own = next((machine for machine in self.machines if machine.target is target), None)
        work = measure_launch(launch, own or machine_named(target.name), self.most_groups)
        lifted = lift(launch.object, launch.kernel.name)
        machines = self.machines or (machine_named(target.name),)
        projections, refused = project_on_each(work, lifted, machines)
        return ProjectedOutcome(
            kernel=launch.kernel.name,
            groups=capture.manifest.groups,
            instructions=sum(sample.instructions for sample in work.samples),
            status=ReplayStatus.IMPOSSIBLE if refused else ReplayStatus.EQUAL,
            what="; ".join(refused) or "projected",
            projections=tuple(projections),
            work=work if self.keeps_work else None,
        )
