"""Stacks of other ROCm releases (scripts/rocm-stack), for tests marked ``rocm(release, *packages)``."""

from __future__ import annotations

import functools
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from kept import ROOT, kept, run

from luthier_build.workspace import digest

RELEASES = tomllib.loads((ROOT / "scripts/rocm-stacks.toml").read_text())["releases"]
SUITES: tuple[str, ...] = tuple(RELEASES["6.4"]["tests"])
"""Debian's packages of third-party tests; `make test` runs parts of them above ROCm 6.4."""


def stack(release: str, *packages: str) -> list[str]:
    """Return what to put before a command that is to run above a release of ROCm, with more of Debian's packages."""
    return [str(ROOT / "scripts/rocm-stack"), release, *(["--with", ",".join(packages)] if packages else []), "--"]


def built(
    source: Path, targets: Sequence[str], *flags: str, release: str, packages: Sequence[str] = (), after: str = ""
) -> Path:
    """Return a program of ours, built by the hipcc of a release.

    Args:
        packages: what the root has besides.
        after: what a shell makes options of, in the root, to put behind the source.
    """
    command = ["hipcc", *(f"--offload-arch={target}" for target in targets), "-O1", "-w", "-pthread", *flags]
    shell = ["sh", "-c", f'"$@" {after}', "sh"] if after else []
    key = "rocm-stack", release, *packages, *shell, *command, digest(source), digest(source.with_name("check.h"))
    before = [*stack(release, *packages), *shell]
    return kept(key, lambda output: run([*before, *command, "-o", str(output), str(source)]), source.stem)


@functools.cache
def is_made(release: str, *packages: str) -> bool:
    """Return whether a stack is there and a command runs in it, which some machines forbid."""
    command = [*stack(release, *packages)[:-1], "--made", "--", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose stack is not there: making it takes minutes and gigabytes."""
    for mark in item.iter_markers("rocm"):
        if not is_made(*mark.args):
            pytest.skip(f"not made yet, or cannot run here: scripts/rocm-stack {' '.join(stack(*mark.args)[1:-1])}")
