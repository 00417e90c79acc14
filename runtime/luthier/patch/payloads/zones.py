"""Placement of payloads relative to their instruction."""

from __future__ import annotations

from enum import IntEnum


class Zone(IntEnum):
    """The place of a payload, relative to its instruction."""

    BEFORE = 0
    """Runs on every path to the instruction."""
    BEHIND = 1
    """Runs when control continues at the next instruction; after a conditional branch, if it is not taken."""
    TAKEN = 2
    """Runs when the branch is taken, in a stub after all code to which the branch is redirected."""
