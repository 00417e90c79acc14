"""Jobs of the processes that replay captures, and their outcomes.

A job is a record whose method `Job.run` does the work. Jobs and outcomes are sent between processes as JSON; a job's
JSON names its class.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from luthier.errors import LuthierError
from luthier.support.arrays import counts_array, listed
from luthier.support.wording import counted

if TYPE_CHECKING:
    from luthier.capture import Capture, Replayed
    from luthier.capture.replay import PreparedLaunch

TAKEN = "taken"
"""Answer of a process that uses addresses of the capture."""
_LEFT_OUT = "memory that the recorded launch never accesses is not in the capture (luthier capture --all-memory)"
_NEVER_REPLAYED = "others may have written it: the capture was not replayed when it was made (--all-memory)"


class ReplayStatus(IntEnum):
    """Result of a replay; the largest of all is the exit status of a command."""

    EQUAL = 0
    DIFFERENT = 1
    """The replay has a difference, a fault or a finding."""
    IMPOSSIBLE = 2
    """The launch cannot be run."""


class ReplayOutcome(Struct, kw_only=True, omit_defaults=True):
    """Outcome of a replay; a row of ``luthier replay --json``. `UNSET` fields were not measured."""

    file: str = ""
    kernel: str | UnsetType = UNSET
    groups: tuple[tuple[int, int, int], ...] | UnsetType = UNSET
    """Ids of the work-groups that ran; empty: all."""
    instructions: int | UnsetType = UNSET
    """Wave-instructions executed."""
    seconds: float | UnsetType = UNSET
    status: ReplayStatus
    what: str
    """The result as text."""
    findings: tuple[str, ...] = ()
    recorded_instructions: int | UnsetType = UNSET
    """`instructions` of the recorded launch, if other code ran."""
    parts: int | UnsetType = UNSET
    part_seconds: tuple[float, ...] | UnsetType = UNSET
    device_seconds: float | UnsetType = UNSET
    """Time on a GPU."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def find(self, findings: list[str]) -> None:
        """Add findings of checks."""
        if findings:
            self.findings += tuple(findings)
            self.what += f", {counted(len(findings), 'finding')}"
            self.status = ReplayStatus.DIFFERENT


A = TypeVar("A", bound=Struct)


class Job(Struct, Generic[A], frozen=True, kw_only=True):
    """Work of a process, with an answer of class `answers`."""

    answers: ClassVar[type[Struct]] = ReplayOutcome

    def run(self) -> A:
        """Run the job in this process.

        Raises:
            AddressTaken: this process uses addresses of the captured memory.
            LuthierError: the job cannot be run.
        """
        raise NotImplementedError

    def failed(self, problem: LuthierError) -> Struct:
        """Return the answer for an error of `run`."""
        return ReplayOutcome(status=ReplayStatus.IMPOSSIBLE, what=str(problem))

    def text(self) -> str:
        """Return the job as text for another process."""
        return _text((f"{type(self).__module__}:{type(self).__qualname__}", self))

    def answer(self, text: str) -> A:
        """Return the answer from the text of another process."""
        answer: Any = msgspec.convert(json.loads(text), self.answers, str_keys=True, dec_hook=counts_array)
        return cast(A, answer)


class CaptureJob(Job[A], frozen=True, kw_only=True):
    """Work on one capture.

    Args:
        file: path of the capture.
        device: ``emu:gfx942`` or ``hip:0``; None: an emulated device of the recorded target.
        object: path of a code object to run instead of the recorded one.
        against: file with other expected contents, or ``N=FILE``, as for ``luthier replay --against``.
        checks: checks of the replay.
        threads: host threads that run work-groups; None: one for each core.
    """

    file: str = ""
    device: str | None = None
    object: str | None = None
    against: str | None = None
    checks: tuple[str, ...] = ()
    threads: int | None = None

    def capture(self) -> Capture:
        """Return the capture with its expected contents.

        Raises:
            LuthierError: it cannot be read, or `against` does not fit it.
        """
        from luthier.capture import read_capture

        capture = read_capture(self.file)
        return capture if self.against is None else _against(capture, self.against)

    def launch(self, capture: Capture) -> PreparedLaunch:
        """Return the launch of a capture, ready to run.

        Raises:
            LuthierError: it cannot be run.
        """
        return prepared(capture, target_of(self.device), self.object)

    def outcome(self, capture: Capture, done: Replayed) -> ReplayOutcome:
        """Return the outcome of a replay of a capture."""
        manifest = capture.manifest
        row = outcome(done)
        row.kernel, row.groups = manifest.kernel, manifest.groups
        if done.fault is not None and manifest.left_out:
            row.what += f"; {_LEFT_OUT}"
        if done.difference is not None and not (manifest.replayed or self.object or self.against):
            row.what += f"; {_NEVER_REPLAYED}"
        if self.object:
            row.recorded_instructions = int(capture.counts["executions"].sum())
        return row


def job_of(text: str) -> Job[Any]:
    """Return the job in a text of `Job.text`."""
    name, fields = json.loads(text)
    module, _, made = name.partition(":")
    job: Job[Any] = msgspec.convert(fields, getattr(importlib.import_module(module), made))
    return job


def _text(value: Any) -> str:
    """Return records as ASCII JSON. msgspec's own encoder would refuse file names that are not Unicode."""
    return json.dumps(msgspec.to_builtins(value, enc_hook=listed))


def answered(job: Job[A], run: Callable[[], A] | None = None) -> str:
    """Run a job in this process and return its answer as text, or `TAKEN`.

    Args:
        run: called instead of `Job.run`.
    """
    from luthier.capture.place import AddressTaken

    try:
        return _text((run or job.run)())
    except AddressTaken:
        return TAKEN
    except LuthierError as problem:
        return _text(job.failed(problem))


def outcome(done: Replayed) -> ReplayOutcome:
    """Return the outcome of a replay, with its findings but without facts about the capture."""
    row = compared(done)
    row.find([str(finding) for finding in done.findings])
    return row


def compared(done: Replayed) -> ReplayOutcome:
    """Return whether a replay did what was recorded, without its findings."""
    what = "equal"
    if done.fault is not None:
        what = str(done.fault)
    elif done.difference is not None:
        what = str(done.difference)
    elif done.counts_equal is False:
        what = "the bytes are equal, but the instruction counts differ"
    is_equal = done.same_bytes and done.counts_equal is not False
    status = ReplayStatus.EQUAL if is_equal else ReplayStatus.DIFFERENT
    return ReplayOutcome(instructions=done.instructions, seconds=done.seconds, status=status, what=what)


def prepared(capture: Capture, target: str | None, object: str | None) -> PreparedLaunch:
    """Return a launch that is ready to run, with the recorded code or with that of a file.

    Raises:
        LuthierError: the launch cannot be run.
    """
    from luthier.capture.replay import PreparedLaunch

    target = target or capture.manifest.target
    if object is None:
        return PreparedLaunch(capture, target)
    from luthier.capture.substitute import SubstitutedLaunch
    from luthier.isa.targets import TargetId
    from luthier.objects import load_object_for

    other = load_object_for(object, TargetId.parse(target), kernels=[capture.manifest.kernel])
    return SubstitutedLaunch(capture, other, target)


def _against(capture: Capture, given: str) -> Capture:
    """Return a capture that expects the contents of another file.

    Raises:
        LuthierError: the file does not fit this launch.
    """
    import numpy as np

    from luthier.capture import read_capture
    from luthier.capture.against import expecting, of_capture, pointer

    argument, file = numbered(given)
    if argument is None:
        return expecting(capture, of_capture(capture, read_capture(file)))
    try:
        data = np.fromfile(file, np.uint8)
    except OSError as problem:
        raise LuthierError(f"cannot read: {problem.strerror or problem}", object=file) from None
    return expecting(capture, [(pointer(capture.manifest, argument), data)])


def numbered(given: str) -> tuple[int | None, str]:
    """Return the argument number and the file of ``N=FILE``; for ``FILE``, None and the file."""
    number, mark, file = given.partition("=")
    return (int(number), file) if mark and number.isdecimal() else (None, given)


def is_gpu(device: str | None) -> bool:
    """Return whether a device option names a GPU."""
    return device is not None and device.startswith("hip:")


def target_of(device: str | None) -> str | None:
    """Return the target of a device option; None: the option was not given.

    Raises:
        LuthierError: the device is not an emulated one.
    """
    if device is not None and not device.startswith("emu:"):
        raise LuthierError(f"captures are replayed on emulated devices, such as emu:gfx942, not {device!r}")
    return None if device is None else device.removeprefix("emu:")
