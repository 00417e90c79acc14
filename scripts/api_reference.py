"""The reference of the Python API as Markdown, for readers of the repository: docs/api.md, made of docs/api.rst and
the docstrings that it names.

Use: python scripts/api_reference.py [--check]   (writes the page; with --check it is compared, and nothing written)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from luthier.support.processes import run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"


def reference() -> str:
    """Return the page as Sphinx writes it.

    Raises:
        LuthierError: a docstring is no reStructuredText; it says which.
    """
    with tempfile.TemporaryDirectory() as made:
        options = ["-q", "-W", "--keep-going", "-b", "markdown", "-c", str(ROOT / "docs"), "-d", f"{made}/cache"]
        command = [
            sys.executable,
            "-m",
            "sphinx",
            *options,
            str(ROOT),
            f"{made}/markdown",
            str(PAGE.with_suffix(".rst")),
        ]
        run(command)
        return Path(made, "markdown/docs/api.md").read_text()


if __name__ == "__main__":
    page = reference()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what the docstrings say: run `make format`")
