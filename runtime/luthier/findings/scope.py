"""Scope of the checks of a run: what they looked at, and what they did not look for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from luthier.findings.kinds import CHECKS, INIT_WORDS, ChosenChecks
from luthier.support.wording import counted

_SLOW = 10.0
"""Seconds of launches from which the text says which check is slow."""


class CheckedScope(Struct, frozen=True):
    """Launches and memory that checks have looked at."""

    launches: int = 0
    """Launches of the program's kernels."""
    observed: int = 0
    """Those of them in which checks observed each instruction."""
    left: int = 0
    """Launches that were not observed because the budget of time was used up."""
    kernels: int = 0
    seconds: float = 0
    """Duration of all launches."""
    allocations: int = 0
    bytes: int = 0
    """Bytes of these allocations."""
    by_hooks: bool = False
    """Whether hooks made all checks: then the launches that were not observed were not checked at all."""

    def observes(self, check: str) -> bool:
        """Return whether a check looked at the observed launches only."""
        return self.by_hooks or CHECKS[check].observes

    def to_json(self, chosen: ChosenChecks, kinds: Collection[str]) -> dict[str, Any]:
        """Return it as plain data, with the checks that ran; arguments as for `lines`."""
        return {
            "checks": list(chosen.checks),
            "kinds": sorted(kinds),
            "launches": self.launches,
            "observed_launches": self.observed,
            "left_for_lack_of_time": self.left,
            "kernels": self.kernels,
            "seconds": self.seconds,
            "allocations": self.allocations,
            "bytes": self.bytes,
            "not_looked_for": [*_not_run(chosen), *(f"init: {word}" for word in _init_not_run(chosen, kinds))],
        }

    def lines(self, chosen: ChosenChecks, kinds: Collection[str]) -> Iterator[str]:
        """Yield which checks ran on what, which did not, and which one is slow.

        Args:
            chosen: checks that ran.
            kinds: kinds of findings that they looked for.
        """
        checks = chosen.checks
        observing = [check for check in checks if self.observes(check)]
        always = [check for check in checks if not self.observes(check)]
        memory = f"; {counted(self.allocations, 'allocation')} of {self.bytes} bytes" if self.allocations else ""
        launches = f"{counted(self.launches, 'launch')} of {counted(self.kernels, 'kernel')}"
        if self.observed == self.launches or not observing:
            always, observing = [*checks], []
        if always:
            yield f"checked: {_named(always, kinds)}: {launches}{memory}"
        if observing:
            why = f" ({self.left} for lack of time)" if self.left else ""
            yield (
                f"checked: {_named(observing, kinds)}: {self.observed} of {counted(self.launches, 'launch')}; "
                f"{self.launches - self.observed} left out{why}"
            )
        not_run = _not_run(chosen)
        of_all = [check for check in not_run if CHECKS[check].in_all]
        missing = [f"{', '.join(of_all)} (--check all)"] if of_all else []
        missing += [f"{check} (--check all,{check})" for check in not_run if not CHECKS[check].in_all]
        if words := _init_not_run(chosen, kinds):
            missing.append(f"init of {' and '.join(words)} (--init {','.join(INIT_WORDS)})")
        if missing:
            yield f"not looked for: {'; '.join(missing)}"
        slowest = max(checks, key=lambda check: CHECKS[check].cost)
        if self.seconds >= _SLOW and CHECKS[slowest].cost > 1.5:
            yield (
                f"the launches took {self.seconds:.0f} s: of these checks {slowest} is usually the slowest (it takes "
                f"{CHECKS[slowest].cost} times as long as a run without checks); leaving it out (,-{slowest} after "
                "the checks), --check fast and `luthier sanitize --budget` save time"
            )


def _named(checks: Collection[str], kinds: Collection[str]) -> str:
    """Return the names of checks, with what `init` reports if that is not its default."""
    words = [word for word, of_word in INIT_WORDS.items() if of_word & set(kinds)]
    init = "init" if words == ["reads"] else f"init ({', '.join(words)})"
    return ", ".join(init if check == "init" else check for check in checks)


def _not_run(chosen: ChosenChecks) -> list[str]:
    return [check for check in CHECKS if check not in chosen.checks and check not in chosen.unknown]


def _init_not_run(chosen: ChosenChecks, kinds: Collection[str]) -> list[str]:
    """Return the words of ``--init`` that would report more."""
    return [word for word, of_word in INIT_WORDS.items() if "init" in chosen.checks and not of_word & set(kinds)]
