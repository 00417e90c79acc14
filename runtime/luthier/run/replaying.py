"""Replays of captured launches under tools, as if a program on virtual devices launched them."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from msgspec.structs import replace

from luthier.capture import Replayed
from luthier.capture.place import NearMemory
from luthier.capture.program import Program, isa_of
from luthier.capture.replay import STEP_LIMIT, PreparedLaunch
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.device import WAITING
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable
from luthier.findings.collector import instruction_site
from luthier.findings.finding import Finding
from luthier.objects import CodeObject
from luthier.patch.payloads.code import ORIGINAL
from luthier.run.instrumentation import Instrumentation
from luthier.run.loaded import LoadedCompanion
from luthier.run.patching import Asked, Patched, digest_of, most_group, most_items, most_private
from luthier.run.record import Recorder
from luthier.run.selection import Selection
from luthier.run.sessions import RECORDS, Session, SessionKernel
from luthier.tool import ToolGroup
from luthier.tool.observation import Launch


class ReplayedRun:
    """Replays in this process under tools, which see a run with this process and the captures' targets as devices.
    There are no API calls.

    Args:
        recorder: writes the run folder.
        hoist, asked: as for `Instrumentation`.
    """

    def __init__(
        self,
        tools: ToolGroup,
        recorder: Recorder | None = None,
        *,
        hoist: bool | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.instrumentation = Instrumentation(tools, Selection(), recorder, hoist=hoist, asked=asked)
        self.instrumentation.begin()
        self._session = Session(os.getpid(), "", 0 if recorder is None else RECORDS, {"parent": None, "rank": None})
        self.instrumentation.sessions.append(self._session)
        self.devices: list[str] = []
        """Targets by the number of the device."""
        self._rows: dict[tuple[str, str, int], int] = {}

    def replay(self, original: PreparedLaunch, threads: int | None = None, check: Collection[str] = ()) -> Replayed:
        """Run a launch with its kernel patched, or with the original if it cannot be or tools request nothing.

        Args:
            original: launch to instrument.
            check: as for `luthier.capture.replay.replay`; findings in the patched kernel have addresses of the
                original.

        Raises:
            AddressTaken: an address of the program's memory is in use in this process.
            LuthierError: the launch cannot be run.
        """
        gpu = self._device(str(original.device))
        number = self._row(original, gpu)
        patched = self._session.kernels[number].patched
        if patched.companion is None or self._exceeds(original, patched):
            return self._run(original, number, threads, check)
        companion = CodeObject(patched.companion.data, original.object.name)
        distance = original.program.place - original.code.base
        places = {ORIGINAL: distance}
        memory = original.accessible
        variables = []
        for block in patched.companion.blocks:
            shared = self.instrumentation.block(self._session, gpu, block.symbol).memory
            places[block.symbol] = int(shared.bytes.ctypes.data)
            variables.append((places[block.symbol], shared.size, "variables of tools", shared))
        goes_back = patched.companion.report.kernels[0].unknown_calls > 0
        # Then both codes are decoded as one, whose table covers the addresses between them.
        beside = NearMemory(distance, original.capture.manifest.ranges) if goes_back else AllocationTable(limit=1 << 62)
        image = LoadedImage(companion, beside, places.get)
        taken = [memory.register(one.address, one.size, one.label, one.keep) for one in image.allocations]
        taken += [memory.register(*one) for one in variables]
        try:
            loaded = LoadedCompanion(companion, image.bias, original.object, distance, places, goes_back)
            self._session.companions[gpu, image.bias] = loaded
            launch = original.with_program(_program(original, loaded), STEP_LIMIT * WAITING)
            done = self._run(launch, number, threads, check, instrumented=True)
            return replace(done, findings=tuple(_in_original(one, loaded) for one in done.findings))
        finally:
            for allocation in taken:
                memory.free(allocation)
            image.unload()

    def _device(self, target: str) -> int:
        """Return the number of the device of a target."""
        if target not in self.devices:
            self.devices.append(target)
        return self.devices.index(target)

    def _row(self, launch: PreparedLaunch, gpu: int) -> int:
        """Return the number of a launch's kernel in the session, patched with the tools."""
        key = launch.kernel.name, digest_of(launch.object), gpu
        if key not in self._rows:
            patched = self.instrumentation.patcher.patch(launch.object, launch.kernel.name)
            self._rows[key] = len(self._session.kernels)
            self._session.kernels.append(SessionKernel(launch.kernel, launch.object, gpu, patched))
        return self._rows[key]

    def _exceeds(self, launch: PreparedLaunch, patched: Patched) -> bool:
        """Return whether the launch exceeds the limits of the patched kernel, and report that."""
        facts, kernel = launch.capture.manifest, launch.kernel
        for what, size, most in (
            ("work-items in a work-group", facts.block[0] * facts.block[1] * facts.block[2], most_items),
            ("bytes of LDS", facts.group_segment, most_group),
            ("bytes of private memory", facts.private_segment, most_private),
        ):
            if size > most(kernel, patched):
                reason = f"launches with more than {most(kernel, patched)} {what} run uninstrumented"
                self.instrumentation.tell(f"{kernel.name}: {reason}")
                return True
        return False

    def _run(
        self,
        launch: PreparedLaunch,
        number: int,
        threads: int | None,
        check: Collection[str],
        *,
        instrumented: bool = False,
    ) -> Replayed:
        facts, kernel = launch.capture.manifest, self._session.kernels[number]
        began = Launch(
            *(kernel.kernel, kernel.object, self._session.pid, kernel.gpu, facts.number, facts.grid, facts.block),
            *(facts.group_segment, facts.private_segment, instrumented),
        )
        now = time.time_ns()
        self.instrumentation.begin_launch(self._session, began)
        if began.captured:
            self.instrumentation.tell("replays are not captured again, though a tool requested it")
        done = launch.run(threads, check)
        groups = sum(count[0] * count[1] * count[2] * launch.waves(items) for _, count, items in launch.parts())
        self._session.add_launch(number, began, groups, now)
        self.instrumentation.end_launch(self._session, kernel.gpu)
        return done


def _in_original(finding: Finding, loaded: LoadedCompanion) -> Finding:
    """Return a finding with addresses of the original kernel; a finding in a hook says so."""
    address = loaded.original_address(finding.offset)
    if address is None:
        origin = loaded.origin(finding.offset, lambda register: 0)
        return replace(finding, instruction=f"{finding.instruction}, {origin}")
    address, _, frames, no_source = instruction_site(address, "", loaded.original)
    finding = replace(finding, offset=address, frames=frames, no_source=no_source)
    at = None if finding.other is None else loaded.original_address(finding.other.offset)
    if finding.other is None or at is None:
        return finding
    at, _, frames, no_source = instruction_site(at, "", loaded.original)
    return replace(finding, other=replace(finding.other, offset=at, frames=frames, no_source=no_source))


def _program(original: PreparedLaunch, loaded: LoadedCompanion) -> Program:
    """Return the program with the patched kernel."""
    kernel, before = loaded.kernel, original.kernel
    code = DecodedCode(isa_of(loaded.object, original.device, kernel), loaded.code())
    code.origin = loaded.origin
    return replace(
        original.program,
        object=loaded.object,
        kernel=kernel,
        code=code,
        place=code.base,
        group=original.program.group + kernel.group_segment_fixed_size - before.group_segment_fixed_size,
        private=original.program.private + kernel.private_segment_fixed_size - before.private_segment_fixed_size,
    )
