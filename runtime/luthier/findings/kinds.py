"""Kinds of findings and their checks: one table for all commands, the API and native code."""

from __future__ import annotations

import enum
from collections.abc import Collection

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.support.suggestions import did_you_mean
from luthier.wire.floats import FLOAT_DENORMAL, FLOAT_INFINITY, FLOAT_NAN


class FindingKind(enum.IntEnum):
    """Kind of a finding: its number in messages, its name, its check, and its meaning.

    The check reports an `optional` kind only on request.
    """

    label: str
    check: str
    meaning: str
    optional: bool

    def __new__(cls, number: int, label: str, check: str, meaning: str, optional: bool = False) -> FindingKind:
        """Return a kind with its attributes."""
        kind = int.__new__(cls, number)
        kind._value_ = number
        kind.label, kind.check, kind.meaning, kind.optional = label, check, meaning, optional
        return kind

    OUTSIDE = 1, "out-of-bounds", "memory", "access of memory outside of the program's allocations"
    FREED = 2, "use-after-free", "memory", "access of memory that the program has freed"
    NOWHERE = 3, "invalid-address", "memory", "access of an address at which the device has no memory"
    DOUBLE_FREE = 4, "double-free", "memory", "memory is freed twice"
    INVALID_FREE = 5, "invalid-free", "memory", "an address inside an allocation is freed"
    LEAK = 6, "leak", "leak", "memory is never freed"
    RACE = (
        *(7, "race", "race"),
        "two unordered accesses of the same memory, one a write, one non-atomic or of too small a scope",
    )
    UNINITIALISED = 8, "uninitialised-read", "init", "read of memory that was never written"
    DIVERGENT_BARRIER = (
        *(9, "divergent-barrier", "barrier"),
        "some lanes of the wave skipped this barrier and continued after it",
    )
    MISSED_BARRIER = (
        *(10, "missed-barrier", "early-exit"),
        "barrier that a wave of the work-group, or a lane of the wave, never reached",
    )
    NAN = 11, "nan", "fp", "NaN result of operands that are not NaN"
    INFINITY = 12, "infinity", "fp", "infinite result of operands that are neither NaN nor infinite"
    DENORMAL = (
        *(13, "denormal", "fp"),
        "denormal result of operands that are neither NaN, infinite nor denormal",
        True,
    )
    NAN_FLOW = 14, "nan-flow", "fp", "NaN result of a NaN operand", True
    INFINITY_FLOW = (
        *(15, "infinity-flow", "fp"),
        "infinite result of an operand that is NaN or infinite",
        True,
    )
    DENORMAL_FLOW = (
        *(16, "denormal-flow", "fp"),
        "denormal result of an operand that is NaN, infinite or denormal",
        True,
    )
    CALL_ERROR = 17, "call-error", "host", "HIP function that returned an error"
    UNSEEN_ERROR = (
        *(18, "unseen-error", "host"),
        "launch that failed, whose error the program did not query before its next launch or its end",
    )
    OUTSIDE_COPY = (
        *(19, "copy-out-of-bounds", "host"),
        "copy or fill beyond the end of the allocation in which it starts",
    )
    FREED_COPY = 20, "copy-after-free", "host", "copy or fill of memory that the program has freed"
    BUSY_STREAM = 21, "busy-stream", "host", "stream that is destroyed before its work completes"
    UNORDERED_READ = (
        *(22, "unordered-read", "race"),
        "read of LDS that is unordered with an atomic of another wave",
    )
    SHORT_ARGUMENTS = (
        *(23, "short-arguments", "host"),
        "launch that passes fewer bytes of arguments than the kernel takes",
    )
    UNDEFINED_BRANCH = (
        *(24, "uninitialised-branch", "init"),
        "a branch depends on a value that was never written",
        True,
    )
    UNDEFINED_ADDRESS = (
        *(25, "uninitialised-address", "init"),
        "an address depends on a value that was never written",
        True,
    )
    UNDEFINED_MASK = (
        *(26, "uninitialised-mask", "init"),
        "the active lanes depend on a value that was never written",
        True,
    )
    COPY_DIRECTION = 27, "copy-direction", "host", "copy whose kind names device memory as host memory"
    UNDEFINED_COPY = 28, "uninitialised-copy", "init", "copy to the host of bytes that were never written", True
    ONLY_PAGES = (
        *(29, "", ""),
        "no finding: a launch ran while no allocation of the process was known, so that bounds are those of pages; of "
        "a call: only pages are known of that function's memory",
    )
    STOPPED = (
        *(30, "fault", "memory"),
        "kernel that stops: a trap, a jump outside of code, an access outside of scratch, or a misaligned one",
    )
    MISSING_WAIT = (
        31,
        "missing-wait",
        "waits",
        "use of a register before a wait for the operation that writes or reads it",
    )
    HAZARD = 32, "hazard", "hazards", "instructions closer together than the hardware allows"
    UNORDERED_STORE = 33, "unordered-store", "race", "store to LDS that other waves may not see after a barrier"
    UNALLOCATED = (
        *(34, "unallocated", "memory"),
        "registers, LDS or private memory that the kernel descriptor does not allocate",
    )
    INACTIVE_LANE = (
        *(35, "inactive-lane", "wave-size"),
        "use of a value that a shuffle took from an inactive lane",
    )
    HALF_MASK = (
        *(36, "half-mask", "wave-size"),
        "mask of 64 lanes used as 32 bits: lanes 32 to 63, some of which are in it, are lost",
    )
    MISSING_RELEASE = (
        *(37, "missing-release", "race"),
        "access after a flag or lock of another wave, whose store before it may not be visible: a fence is missing",
    )
    MISSING_ACQUIRE = (
        *(38, "missing-acquire", "race"),
        "read after a flag or lock of another wave, without a fence: it may see what was there before",
    )
    BEYOND_WAVE = (
        *(39, "lane-beyond-wave", "wave-size"),
        "lanes of a shuffle, from 32 on, that a wave of 32 lanes does not have",
    )
    UNSAFE_ATOMIC = (
        *(40, "unsafe-atomic", "memory"),
        "float atomic of fine-grained memory, which the hardware may leave out",
    )
    WRITE_IN_FLIGHT = (
        *(41, "write-in-flight", "in-flight"),
        "the host writes the source of an asynchronous copy before it synchronises with the copy",
    )
    ACCESS_IN_FLIGHT = (
        *(42, "access-in-flight", "in-flight"),
        "the host reads or writes the destination of an asynchronous copy before it synchronises with the copy",
    )
    FREE_IN_FLIGHT = (
        *(43, "free-in-flight", "in-flight"),
        "memory is freed in a stream that does not wait for an asynchronous copy of it in another stream",
    )


KIND_OF_NUMBER = {int(kind): kind for kind in FindingKind}
KINDS = {kind.label: kind for kind in FindingKind if kind.label}
"""Name -> kind."""


class CheckFacts(Struct, frozen=True):
    """A check: what it looks for, what it costs, and when it runs."""

    purpose: str
    cost: float
    """Duration of kernels under it, as a multiple of that without it: about the mean in
    benchmarks/README.md, and 1.0 where the difference is noise."""
    in_default: bool = False
    """Whether it runs if the user names no check: it is quiet on right programs."""
    observes: bool = True
    """Whether it observes the instructions of launches, so that single launches can be left out."""
    in_all: bool = True
    """Whether it belongs to the set of all checks: right programs have no findings, or those are warnings."""


CHECKS = {
    "memory": CheckFacts("bounds of allocations, use after free, bad frees", 1.0, in_default=True, observes=False),
    "leak": CheckFacts("memory never freed", 1.0, in_default=True, observes=False),
    "race": CheckFacts("unordered accesses of the same memory", 2.3, in_default=True),
    "init": CheckFacts("reads of memory that was never written", 1.6, in_default=True),
    "barrier": CheckFacts("barriers that lanes skip", 1.0, in_default=True),
    "early-exit": CheckFacts(
        "waves that end before a barrier that others reach, which the hardware allows", 1.0, in_default=True
    ),
    "waits": CheckFacts("registers used without a wait", 4.6),
    "hazards": CheckFacts("missing wait states", 1.3),
    "fp": CheckFacts("operations that produce NaN or infinities", 1.0),
    "wave-size": CheckFacts("shuffles and masks written for other numbers of lanes", 2.7),
    "host": CheckFacts(
        "errors of HIP functions, failed launches, copies out of bounds, streams destroyed while busy",
        *(1.0, True, False),
    ),
    "in-flight": CheckFacts(
        "memory that the host uses while an asynchronous copy may use it", 1.0, observes=False, in_all=False
    ),
}
"""Check -> facts about it."""
DEVICE_CHECKS = tuple(check for check in CHECKS if check not in ("leak", "host", "in-flight"))
"""Checks of an emulated device, and of captured launches; the others are about a whole program."""
_CHEAP = 1.2
ALL, DEFAULT, FAST = "all", "default", "fast"
SETS = {
    DEFAULT: tuple(check for check, facts in CHECKS.items() if facts.in_default),
    FAST: tuple(check for check, facts in CHECKS.items() if facts.in_default and facts.cost <= _CHEAP),
    ALL: tuple(check for check, facts in CHECKS.items() if facts.in_all),
}
"""Name of a set of checks -> the checks."""
INIT = "reads"
"""What `init` reports if it is named; as for `kinds_of_init`."""
INIT_IN_SETS = {DEFAULT: "decisions", ALL: "reads,decisions"}
"""What it reports as part of a set."""
WITHOUT = "-"
"""Prefix of a check that is left out."""
EARLIER_CHECKS = {"uninitialised": "init", "races": "race", "bounds": "memory", "registers": "memory", "order": "race"}
"""Earlier name of a check -> name."""


class ChosenChecks(Struct, frozen=True):
    """Checks that the user has chosen."""

    checks: tuple[str, ...]
    named: frozenset[str]
    """Those that the user has named, alone or by `ALL`: their warnings count as errors."""
    init: str
    """What `init` reports: words for `kinds_of_init`, separated by commas."""
    impossible: tuple[str, ...] = ()
    """Checks of a chosen set that cannot run there."""
    unknown: frozenset[str] = frozenset()
    """All checks that cannot run there, chosen or not."""


def _labels(kinds: Collection[FindingKind]) -> frozenset[str]:
    return frozenset(kind.label for kind in kinds)


def kinds_of_check(check: str) -> frozenset[str]:
    """Return the kinds that a check reports by default."""
    return frozenset(label for label, kind in KINDS.items() if kind.check == check and not kind.optional)


def named_checks(
    names: Collection[str], known: Collection[str] = tuple(CHECKS), sets: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the present names of checks, each once.

    Args:
        names: names of checks, possibly earlier ones.
        known: allowed names.
        sets: what else the user may write, for the message.

    Raises:
        LuthierError: there is no such check.
    """
    checks = [EARLIER_CHECKS.get(name, name) for name in names]
    for name, check in zip(names, checks, strict=True):
        if check not in known:
            known = (*known, *sets)
            raise LuthierError(f"no check {name!r}{did_you_mean(name, known)}; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(checks))


def chosen_checks(words: Collection[str], known: Collection[str] = tuple(CHECKS)) -> ChosenChecks:
    """Return the checks that words choose, in the order of the words.

    Args:
        words: checks; sets of them (`SETS`); checks to leave out, with `WITHOUT` before the name. If the first word
            leaves out a check, or there is no word, the others of `DEFAULT` are chosen.
        known: checks that can run.

    Raises:
        LuthierError: there is no such check, or none is chosen.
    """
    words = list(words)
    if not words or words[0].startswith(WITHOUT):
        words.insert(0, DEFAULT)
    chosen: dict[str, None] = {}
    named: set[str] = set()
    init = INIT
    for word in words:
        if word in SETS:
            chosen |= dict.fromkeys(SETS[word])
            named |= set(SETS[word]) if word == ALL else set()
            if word == ALL or "init" not in named:
                init = INIT_IN_SETS.get(word, init)
            continue
        if word.startswith(WITHOUT):
            for check in named_checks([word.removeprefix(WITHOUT)]):
                chosen.pop(check, None)
            continue
        (check,) = named_checks([word], known, SETS)
        init = INIT if check == "init" else init
        chosen[check] = None
        named.add(check)
    checks = tuple(check for check in chosen if check in known)
    if not checks:
        raise LuthierError(f"--check {','.join(words)} leaves no check to run; choose from {', '.join(known)}")
    impossible = tuple(check for check in chosen if check not in known)
    return ChosenChecks(checks, frozenset(named), init, impossible, frozenset(CHECKS.keys() - {*known}))


FLOATS = {"nan": FLOAT_NAN, "infinity": FLOAT_INFINITY, "denormal": FLOAT_DENORMAL}
"""Kind of an exceptional float -> its bit in messages to native code."""
FLOAT_KINDS = frozenset(label for label, kind in KINDS.items() if kind.check == "fp")
DECISIONS = _labels([FindingKind.UNDEFINED_BRANCH, FindingKind.UNDEFINED_ADDRESS, FindingKind.UNDEFINED_MASK])
"""Kinds for decisions by undefined values, which `init` reports on request."""
HANDED = _labels([FindingKind.UNDEFINED_COPY])
"""Kinds for undefined values that are copied to the host, likewise."""
INIT_WORDS = {"reads": kinds_of_check("init"), "decisions": DECISIONS, "copies": HANDED}
"""Word of ``--init`` -> kinds that it selects."""
UNDEFINED = DECISIONS | HANDED
"""Kinds that need tracking of undefined values."""
WATCHED = kinds_of_check("waits") | kinds_of_check("hazards")
"""Kinds that involve two instructions, not an access."""
TRACKING = frozenset({"init", "wave-size"})
"""Checks that may track undefined values."""
OBSERVED = frozenset[str]().union(*map(kinds_of_check, ("race", "barrier", "early-exit", "init")))
"""Kinds that need observation of all memory accesses and barriers."""
LANES = kinds_of_check("wave-size")
"""Kinds that need tracking of values of inactive lanes, and of masks of lanes."""
PAIRED = OBSERVED - kinds_of_check("init") | LANES
"""Kinds that involve another access, instruction, lane or wave."""
LEAK = FindingKind.LEAK.label
WARNINGS = _labels([FindingKind.LEAK, FindingKind.UNORDERED_READ, FindingKind.MISSED_BARRIER])
"""Kinds that right programs may have; all others are errors."""
OF_ALLOCATIONS = (
    kinds_of_check("memory")
    | kinds_of_check("init")
    | kinds_of_check("in-flight")
    | _labels([FindingKind.OUTSIDE_COPY, FindingKind.FREED_COPY, FindingKind.UNDEFINED_COPY])
)
"""Kinds that are shown with the calls that allocated and freed the memory."""


def follows_unwritten(kinds: Collection[str]) -> bool:
    """Return whether kinds need tracking of values that were never written.

    Reads need it beside floats: unwritten memory holds a pattern that must not be reported as exceptional.
    """
    kinds = frozenset(kinds)
    return bool(UNDEFINED & kinds or (kinds_of_check("init") & kinds and FLOAT_KINDS & kinds))


def tracks_undefined(kinds: Collection[str]) -> bool:
    """Return whether kinds need tracking of undefined values, of any source."""
    return follows_unwritten(kinds) or not LANES.isdisjoint(kinds)


def kinds_of_init(words: Collection[str]) -> frozenset[str]:
    """Return the kinds that the words of ``--init`` select.

    Raises:
        LuthierError: there is no such word.
    """
    for word in words:
        if word not in INIT_WORDS:
            raise LuthierError(f"--init takes {', '.join(INIT_WORDS)}, not {word!r}")
    return frozenset[str]().union(*(INIT_WORDS[word] for word in words))
