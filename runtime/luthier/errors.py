"""The one error hierarchy of Luthier.

Everything that can go wrong with a user's input raises a `LuthierError`; anything else that escapes is a bug.
An error carries where it happened (object, kernel, offset, target) so a message can always be traced to bytes.
"""

from __future__ import annotations

from msgspec import Struct

from luthier.terminal import visible


class LuthierError(Exception):
    """An error with its place.

    Args:
        message: what is wrong, and where there is one, the fix.
        object: path or name of the code object, bundle or file.
        kernel: name of the kernel or function.
        offset: byte offset or virtual address the message speaks of.
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
        """Source line of the instruction at `offset`, where it is known."""

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
    """Bytes that are no instruction of the target, or text that does not assemble."""


class LiftError(LuthierError):
    """Code whose control flow or addresses cannot be understood safely."""


class HookError(LuthierError):
    """A hook that does not exist, cannot be compiled, or was given wrong arguments."""


class UnfinishedError(HookError):
    """A hook whose compilation the system ended: by a signal, or for want of memory, processes or files.

    Another try may succeed, so nothing that follows from it is kept.
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
    """A cache that others than its user could have written."""


class DeviceError(LuthierError):
    """A device that cannot be opened, or a launch it refuses."""


class LackError(DeviceError):
    """Something that the system lacks just now: memory, descriptors, processes.

    What is lost by it was not at fault, and another try may succeed.
    """


class Wrong(Struct, frozen=True):
    """Access or instruction of a kernel that stopped it."""

    what: str
    """In words, without its place."""
    lane: int
    """-1: it is not about one lane."""
    wave: int
    group: int
    space: str = ""
    """What was accessed: ``memory`` or ``LDS``; empty if nothing was, as what follows."""
    address: int = 0
    size: int = 0
    """Bytes of the access."""
    extent: int = 0
    """Bytes of the work-group's LDS."""


class EmulationError(DeviceError):
    """A fault of emulated execution: bad address, unimplemented operation, deadlock."""

    registers: str = ""
    """Scalar registers of the wave that failed, and its vector registers as far as the kernel has any, by lane; empty
    where it was not one wave."""
    wrong: Wrong | None = None
    """What the kernel did; None if nothing stopped it that stops a kernel on hardware."""
    waves: tuple[str, ...] = ()
    """A line for each wave of the work-group: where it is, and whether it runs, waits or has ended."""


class VerifyError(LuthierError):
    """Original and patched kernel disagree, or a counter is not the truth."""
