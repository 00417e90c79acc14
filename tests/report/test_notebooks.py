"""The notebooks of examples/notebooks run as they stand, and show what they showed when they were kept."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import nbformat

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
VARIES = re.compile(r"luthier: \[\d+/\d+\][^\n]*|[/…]\S*/|\b[0-9.]+ (?:s|bytes)\b|0x[0-9a-f]+|(?<=  )[0-9.,]+")
"""In what is shown as text: what is compiled, unless that is kept; folders, times, addresses, and in tables
numbers, which depend on compilers."""


def shown(cell: nbformat.NotebookNode) -> tuple[str, list[list[str]]]:
    """Return what a code cell shows: its text without what varies, and the forms that each rich output has."""
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    rich = [sorted(output.data) for output in cell.outputs if output.output_type != "stream"]
    return " ".join(VARIES.sub("", text).split()), rich


@pytest.mark.rows(1)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell without an error, in an empty folder; `assert` in cells has the numbers."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError

    for variable in ("TMPDIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "empty").mkdir()
    kept, done = (nbformat.reads(path.read_text(), as_version=4) for _ in range(2))  # type: ignore[no-untyped-call]
    client = NotebookClient(done, timeout=300, resources={"metadata": {"path": str(tmp_path / "empty")}})
    with (tmp_path / "kernel.err").open("w+") as errors:
        try:
            client.execute(stderr=errors)
        except DeadKernelError as error:
            errors.seek(0)
            pytest.fail(f"{error}; its standard error: {errors.read()}")
    code = [cell.cell_type == "code" for cell in kept.cells]
    assert any(code)
    for before, after in zip(kept.cells, done.cells, strict=True):
        if before.cell_type == "code":
            assert shown(after) == shown(before), before.source


def test_there_are_some() -> None:
    assert len(NOTEBOOKS) == 3
