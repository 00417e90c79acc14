"""Sphinx configuration: a site of the project's documents (`make docs`).

The documents are Markdown that also reads without Sphinx: links go from file to file, and docs/README.md lists all
pages. The whole repository is therefore Sphinx's source folder, and the navigation is made from those lists.
"""

from __future__ import annotations

import builtins
import re
import shutil
from pathlib import Path

import luthier
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import GoogleDocstring
from sphinx_markdown_builder.translator import PREDEFINED_ELEMENTS

ROOT = Path(__file__).resolve().parents[1]

project = "Luthier"
author = "the authors of Luthier"
project_copyright = author
version = release = luthier.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_markdown_builder"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/api.rst",
    "compiler_plugin/README.md",
    "benchmarks/README.md",
    "examples/tools/*/README.md",
    "runtime/luthier/emulator/README.md",
]
exclude_patterns = ["docs/api.md", ".*", "build", "tests", "**/build", "**/*.egg-info"]

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
default_role = "py:obj"  # names in docstrings stand between single backticks
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
# The text before the first colon of an attribute's docstring is not a type, unlike Napoleon assumes.
GoogleDocstring._parse_attribute_docstring = GoogleDocstring._consume_to_end
python_maximum_signature_line_length = 100

# docs/api.md (scripts/api_reference.py): names link to their definitions, and the * of keyword arguments, which Sphinx
# makes an abbreviation, is text.
markdown_anchor_signatures = True
PREDEFINED_ELEMENTS.setdefault("abbreviation", None)

html_theme = "furo"
html_title = "Luthier"
html_show_sourcelink = False
html_copy_source = False
highlight_language = "none"


def contents() -> dict[str, list[str]]:
    """Return the documents by heading of docs/README.md, with the names that Sphinx uses."""
    documents: dict[str, list[str]] = {}
    for section in (ROOT / "docs/README.md").read_text().split("\n## ")[1:]:
        links = re.findall(r"^- \[.*?\]\(([\w./-]+)\.md\)", section, re.MULTILINE)
        places = [(ROOT / "docs" / link).resolve().relative_to(ROOT).as_posix() for link in links]
        documents[section.partition("\n")[0]] = places
    return documents


def toctree(caption: str, documents: list[str]) -> str:
    """Return the directive that adds documents to the navigation, without text."""
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), "", *(f"/{name}" for name in documents)]
    return "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def without_folders(document: str, text: str) -> str:
    """Return the text with links to folders replaced by links to their README, or by text."""

    def replaced(link: re.Match[str]) -> str:
        folder = (ROOT / document).parent / link[2]
        if not folder.is_dir():
            return link[0]
        return f"[{link[1]}]({link[2]}/README.md)" if (folder / "README.md").is_file() else link[1]

    return re.sub(r"\[([^\]\n]*)\]\(([\w./-]+)\)", replaced, text)


def add_navigation(app: Sphinx, document: str, source: list[str]) -> None:
    """Add every document to the navigation: those of the contents below the first, tools below their page.

    Anchors that a page keeps for sections that have moved become MyST's, which links can find.
    """
    source[0] = re.sub(r'<a id="([\w-]+)"></a>', r"[]{#\1}", without_folders(document, source[0]))
    if document == root_doc:
        source[0] += "".join(toctree(caption, names) for caption, names in contents().items())
        source[0] += toctree("", ["docs/README"])
    elif document == "docs/tools":
        pages = sorted(path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("examples/tools/*/README.md"))
        source[0] += toctree("", [page.as_posix() for page in pages])


def add_index(app: Sphinx, problem: Exception | None) -> None:
    """Copy the first page to index.html."""
    if problem is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def unlink_builtins(app: Sphinx, tree: nodes.document) -> None:
    """Remove links of Python's own types: Sphinx would resolve `bytes` to `Instruction.bytes`."""
    for link in list(tree.findall(pending_xref)):
        if link.get("reftype") == "class" and hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)


def short_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, words: str, result: str
) -> object:
    """Return signatures of dataclasses with default factories without module names."""
    return (re.sub(r"~(?:\w+\.)*", "", words), result) if "<factory>" in (words or "") else None


def setup(app: Sphinx) -> None:
    """Connect the functions above; Sphinx calls this first."""
    app.connect("doctree-read", unlink_builtins)
    app.connect("autodoc-process-signature", short_defaults)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
