"""A tool that is installed, upgraded or removed while a run uses it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import LUTHIER

PACKAGE = "luthier_instr_count"
WAIT = ": > ready; while [ ! -e go ]; do sleep 0.05; done; "
SCRIPTS = {
    "before": WAIT + "{program} && {program} && {other}",
    "between": "{program} && " + WAIT + "{program} && {other}",
}
"""When the tool changes: before the first kernel, or before ones that are launched again and others."""


def remove(package: Path) -> None:
    """As pip does before it puts another version there."""
    shutil.rmtree(package)


def replace(package: Path) -> None:
    """Another version, with other hooks."""
    remove(package)
    other = package.parent / "other"
    shutil.copytree(Path(sysconfig.get_path("purelib")) / "luthier_opcode_histogram", other)
    other.rename(package)


def damage(package: Path) -> None:
    """A version that is half written."""
    for path in package.iterdir():
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def counted(folder: Path, script: str, change: Callable[[Path], None] | None) -> dict[str, Any]:
    """Run a script under the tool, which is changed in the middle; return what the run has counted."""
    site = folder / "site"
    for path in Path(sysconfig.get_path("purelib")).glob(f"{PACKAGE}*"):
        shutil.copytree(path, site / path.name)
    command = [LUTHIER, "run", "-t", "instr_count", "--json", "run.json", "--", "sh", "-c", script]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while change and not (folder / "ready").exists() and process.poll() is None:
        time.sleep(0.05)
    if change:
        change(site / PACKAGE)
    (folder / "go").touch()
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0, output
    assert "Traceback" not in output
    results: dict[str, Any] = json.loads((folder / "run.json").read_text())
    kernels = {one["kernel"]: (one["launches"], one["instrumented"], one["sites"]) for one in results["kernels"]}
    return {"tools": results["tools"], "kernels": kernels}


@pytest.fixture(scope="module")
def run_with(build_program: Callable[..., Path]) -> Callable[[Path, str, Callable[[Path], None] | None], Any]:
    """``run_with(folder, when, change)``: what a run has counted."""

    def run(folder: Path, when: str, change: Callable[[Path], None] | None) -> dict[str, Any]:
        names = {"program": build_program("graph"), "other": build_program("histogram")}
        return counted(folder, SCRIPTS[when].format(**names), change)

    return run


@pytest.fixture(scope="module")
def expected(run_with: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the counts without changes."""
    return run_with(tmp_path_factory.mktemp("unchanged"), "between", None)


@pytest.mark.rows
@pytest.mark.parametrize("change", [remove, replace, damage])
@pytest.mark.parametrize("when", SCRIPTS)
def test_a_tool_changes_while_a_run_uses_it(
    when: str, change: Callable[[Path], None], run_with: Callable[..., Any], expected: Any, tmp_path: Path
) -> None:
    """The run continues with the version that it loaded at its start."""
    assert len(expected["kernels"]) > 1
    assert run_with(tmp_path, when, change) == expected
