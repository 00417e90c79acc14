"""A profile of device code for ``clang -fprofile-sample-use``."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from luthier.report.formats.declare import ReportFormat

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write the profile, and print on standard error what it lacks."""
    from luthier.report.sample_profile import sample_profile

    profile = sample_profile(folder)
    out.write(profile.text().encode())
    profile.say()


FORMAT = ReportFormat(help="a profile of device code for clang -fprofile-sample-use", write=write)
"""LLVM's text format of sample profiles."""
