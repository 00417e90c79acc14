"""The process in which `luthier replay` replays one capture, and what starts such processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from luthier.cli.replay_answers import AGAIN, DIFFERENT, EQUAL, IMPOSSIBLE, answer, answered
from luthier.errors import DeviceError, LuthierError
from luthier.support.wording import counted

if TYPE_CHECKING:
    from luthier.capture import Capture, Replayed
    from luthier.capture.replay import PreparedLaunch

REPLAY = "luthier.cli.replay_process"
"""Name of this module."""
SANITIZED = ("memory", "race", "init", "barrier", "early-exit", "fp")
"""Checks of `luthier sanitize` that replays have."""
TRIES = 16
"""Processes that are started until one has nothing where the program had its memory."""
_TASK: dict[str, Any] = {
    "device": None,
    "reduce": False,
    "checks": [],
    "object": None,
    "against": None,
    "threads": None,
    "relocate": False,
}
"""What a process that replays is asked for, beside its file, where nothing else is said."""
_LEFT_OUT = "memory that the recorded launch never accesses is not in the capture (luthier capture --all-memory)"
_NEVER_REPLAYED = "others may have written it: the capture was not replayed when it was made (--all-memory)"


def replay_elsewhere(path: Path, **more: Any) -> dict[str, Any]:
    """Replay a capture in a process of its own, which a capture cannot harm, and whose addresses are others in each.

    Args:
        more: entries of a task: `device`; `checks`, what to look for; `object` and `against`, as the options;
            `reduce`, leave out of the file what it does not access, where it is equal; `threads` of the host that
            run work-groups (all cores by default); `time_limit`, seconds.

    Returns:
        `status` and `what` was found, in words; `instructions` and `seconds` if it ran.
    """
    return row_elsewhere(REPLAY, path, more)


def replay_held(
    files: Sequence[str], held: Mapping[str, Capture], limit: float, **more: Any
) -> tuple[set[str], list[str]]:
    """Replay captures of our own in a fork of this process; return the files of those that are equal, and those that
    need a process of other addresses. The others fail, or their process does: they are for `replay_elsewhere`.

    Args:
        held: captures in this process's memory, which are in no file yet.
        limit: seconds that all may take.
        more: entries of a task, as of `replay_elsewhere`.
    """
    import luthier.capture  # which the fork is not to do  # noqa: F401
    from luthier.emulator.native.machine import machine_code
    from luthier.support.forks import in_fork

    def work() -> str:
        machine_code.cache_clear()  # that of a run is not for this process
        return answered(partial(here, held=held), {**_TASK, **more, "files": [*files]})

    try:
        return _equal_and_taken(in_fork(work, error=DeviceError, seconds=limit))
    except DeviceError:
        return set(), []


def replay_together(files: Sequence[str], limit: float, **more: Any) -> set[str]:
    """Replay captures of our own in as few new processes as their addresses allow; return the files of those that are
    equal. Arguments as of `replay_held`."""
    left, equal = [*files], set[str]()
    for _ in range(TRIES):
        if not left:
            break
        try:
            found, left = _equal_and_taken(_in_process(REPLAY, {**_TASK, **more, "files": left}, limit))
        except DeviceError:
            break
        equal |= found
    return equal


def _equal_and_taken(told: str) -> tuple[set[str], list[str]]:
    """Return the files whose replays were equal, and those whose addresses were taken, of what `here` has told."""
    rows = json.loads(told)
    return {file for file, row in rows["replays"].items() if row["status"] == EQUAL}, rows["taken"]


def row_elsewhere(module: str, path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a module that is run as a program prints for a capture, as `replay_elsewhere`.

    Args:
        options: entries of its task; `time_limit`, seconds.
    """
    from luthier.cli.replay_server import in_server

    more = dict(options)
    limit = more.pop("time_limit", None)
    try:
        found = elsewhere(module, {**_TASK, "file": str(path), **more}, limit, first=in_server)
    except DeviceError as problem:
        return {"file": str(path), "status": IMPOSSIBLE, "what": str(problem)}
    return {"file": str(path)} | found


def _in_process(module: str, task: Mapping[str, Any], limit: float | None) -> str:
    """Return what a module that is run as a program prints for a task, in a new process."""
    from luthier.support.processes import run as run_process

    return run_process([sys.executable, "-m", module, json.dumps(task)], error=DeviceError, timeout=limit)


def elsewhere(
    module: str,
    task: Mapping[str, Any],
    limit: float | None = None,
    first: Callable[[str, Mapping[str, Any], float | None], str] = _in_process,
) -> dict[str, Any]:
    """Return what a module that is run as a program prints for a task (`answer`), in a process of its own.

    Args:
        limit: seconds that it may take.
        first: tries it first; new processes do where that has something else at the captures' addresses.

    Raises:
        DeviceError: it fails, or takes longer, or each process has something else where the captures' memory was.
    """
    for attempt in range(TRIES):
        try:
            told = (_in_process if attempt else first)(module, task, limit)
        except DeviceError as problem:  # it was killed, or there is a bug of ours
            if limit is not None and "did not end within" in problem.message:
                raise DeviceError(f"it did not end within {limit:g} seconds") from None
            raise DeviceError(f"the process that replays it failed: {problem}") from None
        if told.strip() != AGAIN:
            found: dict[str, Any] = json.loads(told)
            return found
    raise DeviceError("addresses of the capture are taken in each process")


def here(task: Mapping[str, Any], held: Mapping[str, Capture] = MappingProxyType({})) -> dict[str, Any]:
    """Return what came of a replay, or of several.

    Args:
        held: captures by the files that they are to have.
    """
    from luthier.capture.place import AddressTaken

    if "files" not in task:
        return _replayed(task)
    rows: dict[str, dict[str, Any]] = {}
    taken = []
    for file in task["files"]:
        try:
            rows[file] = _replayed({**task, "file": file}, held.get(file))
        except AddressTaken:
            taken.append(file)
        except LuthierError as problem:
            rows[file] = {"status": IMPOSSIBLE, "what": str(problem)}
    return {"replays": rows, "taken": taken}


def _replayed(task: Mapping[str, Any], held: Capture | None = None) -> dict[str, Any]:
    """Return what came of a replay.

    Args:
        held: the capture, if it is in no file yet.

    Raises:
        LuthierError: it cannot be run.
    """
    from luthier.capture import write_capture
    from luthier.capture.replay import reduced

    capture = held or expected(task["file"], task)
    if is_gpu(task["device"]):
        return _replayed_on_gpu(capture, task)
    launch = launch_of(capture, task)
    sanitized = [name for name in task["checks"] if name in SANITIZED]
    if sanitized:
        return _sanitized(capture, launch, task, sanitized)
    done = launch.run(task["threads"], task["checks"], keep=task["reduce"])
    if not task["reduce"]:
        return row_of(capture, task, launch.with_store(done))
    if done.fault is None and done.counts_equal is not False:
        capture, done = reduced(capture, done)
        if done.equal:
            write_capture(task["file"], capture)
    return row_of(capture, task, done)


def _replayed_on_gpu(capture: Capture, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return what came of a replay on a GPU.

    Raises:
        LuthierError: it cannot be run.
    """
    from luthier.capture.gpu_replay import replay_on_gpu
    from luthier.devices import open_device
    from luthier.devices.hip import HipDevice

    device = open_device(task["device"])
    assert isinstance(device, HipDevice)  # by its name
    done = replay_on_gpu(capture, device, relocate=task["relocate"])
    status, what = (EQUAL, "equal") if done.difference is None else (DIFFERENT, str(done.difference))
    return {"kernel": capture.manifest.kernel, "status": status, "what": what, "device_seconds": done.seconds}


def _sanitized(
    capture: Capture, launch: PreparedLaunch, task: Mapping[str, Any], names: Sequence[str]
) -> dict[str, Any]:
    """Return what came of a replay with checks of `luthier sanitize`, and another one with the emulated device's.

    Raises:
        LuthierError: it cannot be run.
    """
    from luthier.run.findings.captured import replayed
    from luthier.run.findings.collector import Collector
    from luthier.run.findings.finding import CHECKS

    collector = Collector(frozenset[str]().union(*(CHECKS[name] for name in names)))
    done = launch.with_store(replayed(launch, collector, task["threads"]))
    found = [finding.text for finding in collector.findings]
    others = [name for name in task["checks"] if name not in names]
    if others:
        found += map(str, launch.run(task["threads"], others).findings)
    row = row_of(capture, task, done)
    if found:
        row |= {"findings": found, "what": f"{row['what']}, {counted(len(found), 'finding')}", "status": DIFFERENT}
    return row


def expected(file: str, task: Mapping[str, Any]) -> Capture:
    """Return the capture of a file, with what a task expects of it.

    Raises:
        LuthierError: there is none, or `against` says nothing of it.
    """
    from luthier.capture import read_capture

    capture = read_capture(file)
    return _against(capture, task["against"]) if task["against"] else capture


def launch_of(capture: Capture, task: Mapping[str, Any]) -> PreparedLaunch:
    """Return the launch of a capture that a task asks for.

    Raises:
        LuthierError: it cannot be run.
    """
    return prepared(capture, target_of(task["device"]), task["object"])


def row_of(capture: Capture, task: Mapping[str, Any], done: Replayed) -> dict[str, Any]:
    """Return what a replay did as plain data, with what a task makes of it."""
    row = {"kernel": capture.manifest.kernel, "groups": capture.manifest.groups} | outcome(done)
    if done.fault is not None and capture.manifest.left_out:
        row["what"] += f"; {_LEFT_OUT}"
    if done.difference is not None and not (capture.manifest.replayed or task["object"] or task.get("against")):
        row["what"] += f"; {_NEVER_REPLAYED}"
    if task["object"]:
        row["recorded_instructions"] = int(capture.counts["executions"].sum())
    return row


def prepared(capture: Capture, target: str | None, object: str | None) -> PreparedLaunch:
    """Return a launch that is ready to run, by the recorded code, or by that of a file.

    Raises:
        LuthierError: it cannot be run.
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
    """Return a capture that expects what another file says.

    Raises:
        LuthierError: it says nothing of this launch.
    """
    import numpy as np

    from luthier.capture import read_capture
    from luthier.capture.against import expecting, of_capture, pointer

    number, mark, file = given.partition("=")
    if not (mark and number.isdecimal()):
        return expecting(capture, of_capture(capture, read_capture(given)))
    try:
        data = np.fromfile(file, np.uint8)
    except OSError as problem:
        raise LuthierError(f"cannot be read: {problem.strerror or problem}", object=file) from None
    return expecting(capture, [(pointer(capture.manifest, int(number)), data)])


def outcome(done: Replayed) -> dict[str, Any]:
    """Return what a replay did as plain data: `status`, and `what` in words."""
    what = "equal"
    if done.fault is not None:
        what = str(done.fault)
    elif done.difference is not None:
        what = str(done.difference)
    elif done.counts_equal is False:
        what = "the same bytes, by other numbers of instructions"
    row: dict[str, Any] = {
        "instructions": done.instructions,
        "seconds": done.seconds,
        "status": EQUAL if done.equal else DIFFERENT,
        "what": what,
    }
    if done.findings:
        row["findings"] = [str(finding) for finding in done.findings]
        row["what"] += f", {counted(len(done.findings), 'finding')}"
    return row


def is_gpu(device: str | None) -> bool:
    """Return whether an option names a GPU."""
    return device is not None and device.startswith("hip:")


def target_of(device: str | None) -> str | None:
    """Return the target that an option names; None: it was not given.

    Raises:
        LuthierError: it is no emulated device.
    """
    if device is not None and not device.startswith("emu:"):
        raise LuthierError(f"captures are replayed on emulated devices, such as emu:gfx942, not {device!r}")
    return None if device is None else device.removeprefix("emu:")


if __name__ == "__main__":
    answer(here)
