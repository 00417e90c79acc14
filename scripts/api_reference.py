"""Write the reference of the Python API as Markdown: docs/api.md, made from docs/api.rst and the docstrings it names.

Use: python scripts/api_reference.py [--check]   (writes the page; --check compares it instead)
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from luthier.support.processes import run

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
ANCHOR = re.compile(r'(<a id="[^"]+"></a>)\n\n(#+ )')
"""An anchor in a paragraph of its own, and the heading that it belongs to."""
ATTRIBUTE = re.compile(r"#### (<a .*</a>)((?:\*property\* )?)(\w+)( \*: .*)\n\n([\w\[].*(?:\n.+)*)\n\n(?=#)")
"""The entry of an attribute with one paragraph: its anchor, name, type and text."""


def reference() -> str:
    """Return the page made by Sphinx.

    Raises:
        LuthierError: a docstring is not valid reStructuredText; the message names it.
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
        return condensed(Path(made, "markdown/docs/api.md").read_text())


def condensed(page: str) -> str:
    """Return the page with anchors inside of headings, and lists of attributes in place of a heading for each."""
    page = ANCHOR.sub(r"\2\1", page)
    page = ATTRIBUTE.sub(lambda entry: _item(*entry.groups()), page)
    return re.sub(r"(\n  .+\n)\n(?=- <a )", r"\1", page)


def _item(anchor: str, kind: str, name: str, annotation: str, text: str) -> str:
    return "\n  ".join([f"- {anchor}{kind}**{name}**{annotation}:", *text.split("\n")]) + "\n\n"


if __name__ == "__main__":
    page = reference()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        sys.exit(f"{PAGE.relative_to(ROOT)} does not match the docstrings: run `make format`")
