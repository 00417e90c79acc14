"""How Sphinx makes a site of the project's documents (`make docs`).

The documents are Markdown that reads as well on its own: links go from file to file, and the contents are the lists of
docs/README.md. So the whole repository is Sphinx's source folder, and the navigation is made of those lists.
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
default_role = "py:obj"  # names in docstrings stand between single backticks
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
# What is before the first colon of an attribute's docstring is no type here, as Napoleon takes it to be.
GoogleDocstring._parse_attribute_docstring = GoogleDocstring._consume_to_end
python_maximum_signature_line_length = 100

# docs/api.md (scripts/api_reference.py): names lead to where they are defined, and the * of keyword arguments, which
# Sphinx explains as an abbreviation, is text.
markdown_anchor_signatures = True
PREDEFINED_ELEMENTS.setdefault("abbreviation", None)

html_theme = "furo"
html_title = "Luthier"
html_show_sourcelink = False
html_copy_source = False
highlight_language = "none"


def contents() -> dict[str, list[str]]:
    """Heading of docs/README.md -> the documents that it lists, as Sphinx calls them."""
    found: dict[str, list[str]] = {}
    for section in (ROOT / "docs/README.md").read_text().split("\n## ")[1:]:
        links = re.findall(r"^- \[.*?\]\(([\w./-]+)\.md\)", section, re.MULTILINE)
        places = [(ROOT / "docs" / link).resolve().relative_to(ROOT).as_posix() for link in links]
        found[section.partition("\n")[0]] = places
    return found


def toctree(caption: str, documents: list[str]) -> str:
    """The directive that puts documents into the navigation and shows nothing."""
    lines = [":hidden:", *([f":caption: {caption}"] if caption else []), "", *(f"/{name}" for name in documents)]
    return "\n\n```{toctree}\n" + "\n".join(lines) + "\n```\n"


def without_folders(document: str, text: str) -> str:
    """Links to folders, which a site has no pages for, go to the README in them, or are text alone."""

    def replaced(link: re.Match[str]) -> str:
        folder = (ROOT / document).parent / link[2]
        if not folder.is_dir():
            return link[0]
        return f"[{link[1]}]({link[2]}/README.md)" if (folder / "README.md").is_file() else link[1]

    return re.sub(r"\[([^\]\n]*)\]\(([\w./-]+)\)", replaced, text)


def add_navigation(app: Sphinx, document: str, source: list[str]) -> None:
    """Every document has its place in the navigation: those of the contents below the first, tools below theirs."""
    source[0] = without_folders(document, source[0])
    if document == root_doc:
        source[0] += "".join(toctree(caption, names) for caption, names in contents().items())
        source[0] += toctree("", ["docs/README"])
    elif document == "docs/tools":
        pages = sorted(path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("examples/tools/*/README.md"))
        source[0] += toctree("", [page.as_posix() for page in pages])


def add_index(app: Sphinx, problem: Exception | None) -> None:
    """The first page is found as index.html, too."""
    if problem is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def unlink_builtins(app: Sphinx, tree: nodes.document) -> None:
    """Python's own types are no links: Sphinx would find `bytes` as `Instruction.bytes`."""
    for link in list(tree.findall(pending_xref)):
        if link.get("reftype") == "class" and hasattr(builtins, link["reftarget"]):
            link.replace_self(link.children)


def short_defaults(
    app: Sphinx, what: str, name: str, thing: object, options: object, words: str, result: str
) -> object:
    """Signatures of data classes whose defaults are made by functions are taken as they are: without modules, then."""
    return (re.sub(r"~(?:\w+\.)*", "", words), result) if "<factory>" in (words or "") else None


def setup(app: Sphinx) -> None:
    """Sphinx calls this first."""
    app.connect("doctree-read", unlink_builtins)
    app.connect("autodoc-process-signature", short_defaults)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)
