"""`luthier explain`: pages of rules and findings."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.findings.kinds import CHECKS, KINDS
from luthier.report.rules import RULES
from luthier.support.explanations import Explanation, explanations_in

FOLDERS = [Path(str(files(package) / "explanations")) for package in ("luthier.report", "luthier.findings")]
PAGES = [path for folder in FOLDERS for path in explanations_in(folder).values()]
SECTIONS = ("What it means", "How it arises", "Example", "How to fix it", "What is not seen")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_have_one_form(path: Path) -> None:
    page = Explanation.read(path)
    assert page.summary
    assert not page.summary.endswith(".")
    headings = [line.removeprefix("## ") for line in path.read_text().splitlines() if line.startswith("## ")]
    assert headings == [section for section in SECTIONS if section in headings], "in this order"
    assert {"What it means", "How to fix it"} <= set(headings)
    lines = page.text.splitlines()
    assert max(map(len, lines)) <= 104
    assert len(lines) <= 70
    assert not any(line.startswith(("#", "```")) for line in lines)


def test_every_topic_has_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    for topic in (*RULES.names(), *KINDS, *CHECKS):
        assert f"  {topic} " in listed
        assert main(["explain", topic]) == 0
        first, _, rest = capsys.readouterr().out.partition("\n")
        assert first.startswith(f"{topic}: ")
        assert rest.strip()
    assert {path.stem for path in PAGES} == {*RULES.names(), *KINDS}


def test_an_unknown_topic_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "coalesing"]) == 1
    assert "no topic 'coalesing'; did you mean 'coalescing'?" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "no heading\n", "# \n"])
def test_a_page_without_a_summary_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(LuthierError, match="must begin with '# ' and a summary"):
        Explanation.read(tmp_path / "page.md")
    with pytest.raises(LuthierError, match="cannot be read"):
        Explanation.read(tmp_path / "missing.md")
