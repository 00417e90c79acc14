"""Findings as annotations of source lines, which GitHub shows beside a change.

The commands are those of https://docs.github.com/actions/reference/workflow-commands-for-github-actions.
"""

from __future__ import annotations

import os

from luthier.findings.causes import Cause
from luthier.findings.finding import source_of
from luthier.findings.text import lines_of_cause
from luthier.terminal import visible

_CHECKOUT = "GITHUB_WORKSPACE"
"""Environment variable with the folder of the repository: annotations name files relative to it."""


def github(cause: Cause, *, is_error: bool) -> str:
    """Return the annotation of a finding, with everything that its text says."""
    finding = cause.finding
    frame = source_of(finding.frames)
    values = {"title": finding.kind}
    if frame is not None and frame.line:
        checkout = os.environ.get(_CHECKOUT, "").rstrip("/")
        inside = bool(checkout) and frame.file.startswith(f"{checkout}/")
        values |= {"file": frame.file[len(checkout) + 1 :] if inside else frame.file, "line": str(frame.line)}
        values |= {"col": str(frame.column)} if frame.column else {}
    text = "\n".join(map(visible, lines_of_cause(cause)))
    named = ",".join(f"{name}={_escaped(value, ':', ',')}" for name, value in values.items())
    return f"::{'error' if is_error else 'warning'} {named}::{_escaped(text)}"


def _escaped(text: str, *more: str) -> str:
    for sign in ("%", "\r", "\n", *more):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
