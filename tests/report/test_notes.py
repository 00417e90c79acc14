"""Notes of people: in the run folder, and on the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.errors import LuthierError
from luthier.report.merge import merge
from luthier.report.notes import RunNote, read_notes
from luthier.run.folder import RunFolder
from playwright import sync_api
from run_folders import code, kernel, wasteful_run, write_run

from .conftest import Opened

Open = Callable[..., Opened]
HOSTILE = '<img src=x onerror="window.hacked=1">'


def test_notes_of_a_file(tmp_path: Path) -> None:
    text = "\ufeffBefore.\n# Title\n\n## k\nStage.\r\n\\## no heading\n\\\\## a\u2028## b\n"
    text += "\n## k.hip:3\n\n## *\n\nSecond.\n"
    (tmp_path / "notes.md").write_bytes(text.encode())
    assert read_notes(tmp_path) == [
        RunNote("", "Before.\n# Title"),
        RunNote("k", "Stage.\n## no heading\n\\## a\u2028## b"),
        RunNote("", "Second."),
    ]
    assert read_notes(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("data", "message"), [(b"\xff", "is not UTF-8 text"), (b"a" * ((1 << 20) + 1), "is larger than 1048576 bytes")]
)
def test_damaged_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "notes.md").write_bytes(data)
    with pytest.raises(LuthierError, match=message):
        read_notes(tmp_path)
    (tmp_path / "notes.md").unlink()
    (tmp_path / "notes.md").symlink_to("/etc/passwd")
    with pytest.raises(LuthierError, match="it is a link"):
        read_notes(tmp_path)


def test_notes_on_the_page(tmp_path: Path, open_page: Open) -> None:
    """A note of the folder, at its kernel; one written on the page, at its line, kept by the browser; both in the saved
    file, and on a page made with it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "k.hip").write_text("// A kernel.\nout[i] = in[32 * i];\nlds[32 * i] = out[i];\n")
    run = wasteful_run(tmp_path / "run")
    (run / "notes.md").write_text(f"## k\n\n{HOSTILE}\n\n## gone\n\nOld.\n")
    opened = open_page(run)
    page = opened.page
    assert HOSTILE in opened.text("#kernel-notes")
    assert "gone (not in this run)" in opened.text("#note-list")
    assert opened.text("#note-state") == ""
    page.click("#note-editor summary")
    sync_api.expect(page.locator("#note-place")).to_have_value("k")
    page.fill("#note-place", "k.hip:3")
    text = "Pad the rows.\n## not a heading\n\\## nor this\nA\u00a0B\u202f\U0001f469\u200d\U0001f680"
    page.fill("#note-text", text)
    page.click("#note-editor button[type=submit]")
    row = page.locator(".source-code .row[data-line='3']")
    sync_api.expect(row).to_contain_text("✎ Pad the rows.")
    assert "1 change only in this browser" in opened.text("#note-state")
    page.click("#note-list li:has-text('gone') >> text=Remove")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    sync_api.expect(row).to_contain_text("✎ Pad the rows.")
    assert "2 changes only in this browser" in opened.text("#note-state")
    with page.expect_download() as saved:
        page.click("#note-state button")
    assert saved.value.suggested_filename == "notes.md"
    written = Path(saved.value.path())
    shutil.copy(written, run / "notes.md")
    assert read_notes(run) == [RunNote("k", HOSTILE), RunNote("k.hip:3", text)]
    again = open_page(run)  # in another browser
    assert again.text("#note-state") == ""
    again.page.click("#note-list >> text=k.hip:3")
    sync_api.expect(again.page.locator(".source-code .row.at")).to_contain_text("✎ Pad the rows.")
    assert again.eval("window.hacked") is None


def test_names_of_several_files_and_kernels(tmp_path: Path, open_page: Open) -> None:
    """The page proposes an end of the path that is one file's; a name is that of all kernels that have it."""
    rows = code("k", 4)
    for at, row in enumerate(rows["listings"]):
        row |= {"file": f"/none/{'ab'[at // 2]}/k.hip", "line": 1 + at}
    kernels = [kernel("k"), *(kernel(f"s{at}", name=f"s<{kind}>") for at, kind in enumerate(("int", "float")))]
    run = write_run(tmp_path / "run", kernels=kernels, **rows)
    (run / "notes.md").write_text("## s\nBoth.\n\n## k.hip:99\nNo code.\n")
    opened = open_page(run)
    assert opened.eval("[0, 1].map((one) => notes.nameOf(one)).sort()") == ["a/k.hip", "b/k.hip"]
    assert opened.eval("[1, 2].map((one) => notes.about(one).length)") == [1, 1]
    opened.page.click("#note-list >> text=k.hip:99")
    sync_api.expect(opened.page.locator("#note-list")).to_contain_text("k.hip:99 (no code of a kernel on this page)")
    opened.page.click("#note-editor summary")
    sync_api.expect(opened.page.locator("#note-place")).to_have_value("k")
    opened.page.fill("#note-place", "*")
    opened.page.fill("#note-text", "Whole.")
    opened.page.click("#note-editor button[type=submit]")
    assert opened.eval("notes.all.at(-1)") == {"place": "", "text": "Whole."}


def test_a_merged_run_has_no_form(tmp_path: Path, open_page: Open) -> None:
    runs = [RunFolder(write_run(tmp_path / name, kernels=[kernel("k")], **code("k", 4))) for name in "ab"]
    merge(runs, tmp_path / "merged")
    assert open_page(tmp_path / "merged").page.is_hidden("#note-editor")
