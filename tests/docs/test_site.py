"""The site of the documents: it builds without a warning, needs no network, and has a page for everything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import luthier
import pytest
from api_reference import PAGE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "docs"), "-d", str(made / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT), str(made / "html")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return made / "html"


@pytest.mark.thorough
def test_every_document_is_a_page_in_the_navigation(site: Path) -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/tools/*/README.md")]
    first = (site / "index.html").read_text()
    for document in documents:
        page = document.relative_to(ROOT).with_suffix(".html")
        assert (site / page).is_file()
        if document.parent.name == "docs":
            assert f'href="{page}"' in first


@pytest.mark.thorough
def test_every_public_name_is_documented(site: Path) -> None:
    text = (site / "docs/api.html").read_text()
    documented = set(re.findall(r'id="([\w.]+)"', text))
    for name in luthier.__all__:
        if not name.startswith("__"):
            where = getattr(luthier, name).__module__
            assert {f"luthier.{name}", f"{where}.{name}"} & documented, name


def test_the_reference_as_markdown() -> None:
    """All of docs/api.md reads without Sphinx, and no link leads nowhere."""
    page = PAGE.read_text()
    assert "eval-rst" not in page
    assert set(re.findall(r"\]\(#([\w.]+)\)", page)) <= set(re.findall(r'<a id="([\w.]+)"', page))


@pytest.mark.thorough
def test_no_page_asks_a_network(site: Path) -> None:
    """Links may lead to other sites, but nothing that a browser loads automatically."""
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|img|iframe|link|source)\b[^>]*>", page.read_text()):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{tag} in {page.name}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text()), style.name
