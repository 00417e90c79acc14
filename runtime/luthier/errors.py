"""Luthier's error hierarchy.

Every problem with a user's input raises a `LuthierError`; any other exception that escapes is a bug. An error carries
its location (object, kernel, offset, target), so that a message can be traced to bytes.
"""

from __future__ import annotations

from msgspec import Struct

from luthier.terminal import visible


class LuthierError(Exception):
    """An error with its location.

    Args:
        message: the problem and, if there is one, the fix.
        object: path or name of the code object, bundle or file.
        kernel: name of the kernel or function.
        offset: byte offset or virtual address of the problem.
        target: target id, e.g. ``gfx942:xnack-``.
    """

    def __init__(
        self,
        message: str,
        *,
        object: str | None = None,
        kernel: str | None = None,
        offset: int | None = None,
        target: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.object = object
        self.kernel = kernel
        self.offset = offset
        self.target = target
        self.source: str | None = None
        """Source line of the instruction at `offset`; None: not known."""

    def __str__(self) -> str:
        place = [
            f"{name} {visible(value)}"
            for name, value in (
                ("object", self.object),
                ("kernel", self.kernel),
                ("offset", None if self.offset is None else f"{self.offset:#x}"),
                ("source", self.source),
                ("target", self.target),
            )
            if value is not None
        ]
        return f"{self.message} ({', '.join(place)})" if place else self.message


class TargetError(LuthierError):
    """An unknown, malformed or unsupported target."""


class ObjectError(LuthierError):
    """A malformed or unsupported container, code object, descriptor or metadata."""


class DecodeError(LuthierError):
    """Bytes that are not an instruction of the target, or text that does not assemble."""


class LiftError(LuthierError):
    """Code whose control flow or addresses cannot be determined safely."""


class HookError(LuthierError):
    """A hook that does not exist, cannot be compiled, or was given wrong arguments."""


class UnfinishedError(HookError):
    """A hook whose compilation the system ended: by a signal, or for lack of memory, processes or files.

    Another try may succeed, so the result is not cached.
    """


class ConstantError(HookError):
    """A hook needs a constant where it was given registers."""


class WaveSizeError(HookError):
    """A hook was built for the other wave size."""


class PatchError(LuthierError):
    """A kernel that cannot be rewritten safely."""


class ToolError(LuthierError):
    """A tool that cannot be found, loaded or configured."""


class ToolCodeError(ToolError):
    """A tool's own code raised an exception."""


class BuildError(LuthierError):
    """A device build that failed: missing toolchain, compiler error, bad settings."""


class CacheError(LuthierError):
    """A cache that other users could have written."""


class DeviceError(LuthierError):
    """A device that cannot be opened, or a launch that it refuses."""


class LackError(DeviceError):
    """A temporary lack of memory, descriptors or processes.

    Another try may succeed.
    """


class Wrong(Struct, frozen=True):
    """Access or instruction that stopped a kernel."""

    what: str
    """Description without location."""
    lane: int
    """-1: not a single lane."""
    wave: int
    group: int
    space: str = ""
    """Accessed space: ``memory`` or ``LDS``; empty: no access, and the fields below are unused."""
    address: int = 0
    size: int = 0
    """Bytes of the access."""
    extent: int = 0
    """Bytes of the work-group's LDS."""


class EmulationError(DeviceError):
    """A fault of emulated execution: bad address, unimplemented operation, deadlock."""

    registers: str = ""
    """Scalar registers of the failed wave, and those vector registers that the kernel has, by lane; empty if the error
    is not about one wave."""
    wrong: Wrong | None = None
    """The faulting access or instruction; None if hardware would not have stopped the kernel."""
    waves: tuple[str, ...] = ()
    """A line for each wave of the work-group: its location, and whether it runs, waits or has ended."""


class VerifyError(LuthierError):
    """Original and patched kernel differ, or a counter is wrong."""
