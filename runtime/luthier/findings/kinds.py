"""Kinds of findings, and the checks that look for them: one table for all commands, the API and native code."""

from __future__ import annotations

import enum
from collections.abc import Collection

from luthier.errors import LuthierError
from luthier.support.suggestions import did_you_mean
from luthier.wire.floats import FLOAT_DENORMAL, FLOAT_INFINITY, FLOAT_NAN


class FindingKind(enum.IntEnum):
    """Kind of a finding: its number in messages, its name, the check that looks for it, and what it means.

    A kind that is `optional` is found only where the check is asked for it.
    """

    label: str
    check: str
    meaning: str
    optional: bool

    def __new__(cls, number: int, label: str, check: str, meaning: str, optional: bool = False) -> FindingKind:
        """Return a kind with all that is known of it."""
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.label, kind.check, kind.meaning, kind.optional = label, check, meaning, optional
        return kind

    OUTSIDE = 1, "out-of-bounds", "memory", "access of memory that is in none of the program's allocations"
    FREED = 2, "use-after-free", "memory", "access of memory that the program has given back"
    NOWHERE = 3, "invalid-address", "memory", "access of an address where the device has no memory"
    DOUBLE_FREE = 4, "double-free", "memory", "memory is given back that was given back before"
    INVALID_FREE = 5, "invalid-free", "memory", "an address inside of an allocation is given back"
    LEAK = 6, "leak", "leak", "memory is never given back"
    RACE = (
        *(7, "race", "race"),
        "two accesses of the same memory, one plain or of too small a scope, one a write, that nothing orders",
    )
    UNINITIALISED = 8, "uninitialised-read", "init", "read of memory that was never written"
    DIVERGENT_BARRIER = (
        *(9, "divergent-barrier", "barrier"),
        "some lanes of the wave skipped this barrier and continued behind it",
    )
    MISSED_BARRIER = (
        *(10, "missed-barrier", "early-exit"),
        "barrier that a wave of the work-group, or a lane of the wave, never came to",
    )
    NAN = 11, "nan", "fp", "result that is NaN where no operand is"
    INFINITY = 12, "infinity", "fp", "result that is infinite where no operand is NaN or infinite"
    DENORMAL = (
        *(13, "denormal", "fp"),
        "result that is denormal where no operand is NaN, infinite or denormal",
        True,
    )
    NAN_FLOW = 14, "nan-flow", "fp", "result that is NaN from an operand that is", True
    INFINITY_FLOW = (
        *(15, "infinity-flow", "fp"),
        "result that is infinite from an operand that is NaN or infinite",
        True,
    )
    DENORMAL_FLOW = (
        *(16, "denormal-flow", "fp"),
        "result that is denormal from an operand that is NaN, infinite or denormal",
        True,
    )
    CALL_ERROR = 17, "call-error", "host", "HIP function that returned an error"
    UNSEEN_ERROR = (
        *(18, "unseen-error", "host"),
        "launch that failed, and the program did not ask for the error before its next launch or its end",
    )
    OUTSIDE_COPY = (
        *(19, "copy-out-of-bounds", "host"),
        "copy or fill beyond the end of the allocation that it begins in",
    )
    FREED_COPY = 20, "copy-after-free", "host", "copy or fill of memory that the program has given back"
    BUSY_STREAM = 21, "busy-stream", "host", "stream that is destroyed before its work is done"
    UNORDERED_READ = (
        *(22, "unordered-read", "race"),
        "read of LDS beside an atomic of another wave that nothing orders",
    )
    SHORT_ARGUMENTS = (
        *(23, "short-arguments", "host"),
        "launch that gives fewer bytes of arguments than the kernel takes",
    )
    UNDEFINED_BRANCH = (
        *(24, "uninitialised-branch", "init"),
        "a value that was never written decides where the wave goes on",
        True,
    )
    UNDEFINED_ADDRESS = (
        *(25, "uninitialised-address", "init"),
        "a value that was never written decides which memory is accessed",
        True,
    )
    UNDEFINED_MASK = (
        *(26, "uninitialised-mask", "init"),
        "a value that was never written decides which lanes are active",
        True,
    )
    COPY_DIRECTION = 27, "copy-direction", "host", "copy whose kind says that memory of the device is the host's"
    UNDEFINED_COPY = 28, "uninitialised-copy", "init", "copy to the host of bytes that were never written", True
    ONLY_PAGES = (
        *(29, "", ""),
        "no finding: a launch ran while no allocation of the process was known, so that its bounds were pages; of a "
        "call: of memory by that function pages alone are known",
    )
    STOPPED = (
        *(30, "fault", "memory"),
        "kernel that stops: a trap, a jump to no code, an access outside of scratch, or a misaligned one",
    )
    MISSING_WAIT = (
        31,
        "missing-wait",
        "waits",
        "use of a register before a wait for the operation that writes or reads it",
    )
    HAZARD = 32, "hazard", "hazards", "instructions nearer to each other than the hardware allows"
    UNORDERED_STORE = 33, "unordered-store", "race", "store to LDS that other waves may not see behind a barrier"
    UNALLOCATED = (
        *(34, "unallocated", "memory"),
        "registers, LDS or private memory that the kernel descriptor does not allocate",
    )


KIND_OF_NUMBER = {int(kind): kind for kind in FindingKind}
KINDS = {kind.label: kind for kind in FindingKind if kind.label}
"""Each kind by its name."""
CHECKS = {
    "memory": "bounds of allocations, use after free, bad frees",
    "leak": "memory never given back",
    "race": "accesses that nothing orders",
    "init": "reads of what was never written",
    "barrier": "barriers that lanes skip",
    "early-exit": "waves that end before a barrier that others come to, which hardware allows",
    "waits": "registers used before a wait",
    "hazards": "missing wait states",
    "fp": "what makes NaN and infinities",
    "host": "errors of HIP functions, launches that fail unseen, copies out of bounds, streams destroyed with work",
}
"""Each check, and what it looks for."""
EARLIER_CHECKS = {"uninitialised": "init", "races": "race", "bounds": "memory", "registers": "memory", "order": "race"}
"""Earlier names of checks, and their names."""


def _labels(kinds: Collection[FindingKind]) -> frozenset[str]:
    return frozenset(kind.label for kind in kinds)


def kinds_of_check(check: str) -> frozenset[str]:
    """Return the kinds that a check finds unless it is asked for others."""
    return frozenset(label for label, kind in KINDS.items() if kind.check == check and not kind.optional)


def named_checks(names: Collection[str], known: Collection[str] = tuple(CHECKS)) -> tuple[str, ...]:
    """Return checks by their present names, each once.

    Args:
        names: their names, which may be earlier ones.
        known: names that are allowed.

    Raises:
        LuthierError: there is no such check.
    """
    checks = [EARLIER_CHECKS.get(name, name) for name in names]
    for name, check in zip(names, checks, strict=True):
        if check not in known:
            raise LuthierError(f"no check {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")
    return tuple(dict.fromkeys(checks))


FLOATS = {"nan": FLOAT_NAN, "infinity": FLOAT_INFINITY, "denormal": FLOAT_DENORMAL}
"""Exceptional floats: the kind, and its bit in what native code is told."""
FLOAT_KINDS = frozenset(label for label, kind in KINDS.items() if kind.check == "fp")
DECISIONS = _labels([FindingKind.UNDEFINED_BRANCH, FindingKind.UNDEFINED_ADDRESS, FindingKind.UNDEFINED_MASK])
"""Kinds of undefined values that decide something: what `init` finds if that is asked for."""
HANDED = _labels([FindingKind.UNDEFINED_COPY])
"""Kinds of undefined values that the program hands to the host, likewise."""
UNDEFINED = DECISIONS | HANDED
"""Kinds for which undefined values are followed."""
WATCHED = kinds_of_check("waits") | kinds_of_check("hazards")
"""Kinds that are seen of two instructions, not of an access."""
PAIRED = kinds_of_check("race") | kinds_of_check("barrier") | kinds_of_check("early-exit")
"""Kinds that another access, or another lane or wave, has to do with."""
OF_ALLOCATIONS = kinds_of_check("memory") | _labels([FindingKind.OUTSIDE_COPY, FindingKind.FREED_COPY])
"""Kinds that are shown with the calls that their allocation is from."""
OBSERVED = PAIRED | kinds_of_check("init")
"""Kinds for which every access of memory and every barrier is looked at."""


def kinds_of_init(words: Collection[str]) -> frozenset[str]:
    """Return the kinds of findings that the words of ``--init`` mean.

    Raises:
        LuthierError: there is no such word.
    """
    meant = {"reads": kinds_of_check("init"), "decisions": DECISIONS, "copies": HANDED}
    for word in words:
        if word not in meant:
            raise LuthierError(f"--init has no {word!r}: {', '.join(meant)}")
    return frozenset[str]().union(*(meant[word] for word in words))
