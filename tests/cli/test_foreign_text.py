"""Names from files, on their way to a terminal and into pages: nothing in them is obeyed, and all of it can be seen."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import subprocess
import sys
import unicodedata
import zlib
from pathlib import Path
from typing import Any

import pytest
from commands import MAIN
from luthier import Table
from luthier.cli.main import main
from luthier.cli.progress import ProgressLine
from luthier.errors import LuthierError
from luthier.report.analysis import AnalysedRun
from luthier.report.page import write_page
from luthier.run.folder import RunFolder
from luthier.support import markup
from luthier.terminal import say, say_text, visible, visible_json, visible_lines
from run_folders import code, kernel, launch, write_run
from terminals import on_terminal

EVERY = "".join(map(chr, (*range(0x3100), *range(0xD700, 0x10000), *range(0x10000, sys.maxunicode + 1, 97))))
"""Every character that does something, and some of each kind that only is drawn."""
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "a\rb\x08\x7f",
    "one\nluthier: all is well",
    "safe\u202eexe.gpj\u2066\u200f",
    "\u200b\ufeff\u2028\U000e0041",
    "\udc9b\udcff",
    "tab\there\x00",
)


def is_harmless(text: str) -> bool:
    """By categories of Unicode: nothing but characters that are drawn, spaces, line ends and tabs."""
    return all(
        one in " \n\t" or unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
        for one in text
    )


def test_every_character() -> None:
    """Visible characters are unchanged, all others are written as numbers."""
    shown = visible(EVERY)
    assert is_harmless(shown)
    assert "\n" not in shown
    assert "\t" not in shown
    assert visible(shown) == shown
    drawn = "".join(one for one in EVERY if is_harmless(one) and one not in "\n\t")
    assert visible(drawn) == drawn
    assert shown == "".join(visible(one) for one in EVERY)
    lines = visible_lines(EVERY)
    assert is_harmless(lines)
    assert (lines.count("\n"), lines.count("\t")) == (1, 1)
    assert visible("\u202e") == r"\u202e"
    assert visible("\U000e0041") == r"\U000e0041"


def hostile_text(choose: random.Random) -> str:
    parts = [*HOSTILE, "kernel", '"', "\\", "\\u202e", "\\\\", "é", "𝄞", "\U000e0041", "\\n", "/"]
    return "".join(choose.choice(parts) for _ in range(choose.randint(0, 6)))


@pytest.mark.parametrize("seed", range(20))
def test_json_stays_what_it_is(seed: int) -> None:
    """Parsed, strings are in their visible form; printed raw, the text is harmless."""
    choose = random.Random(seed)

    def value(depth: int) -> Any:
        kind = choose.randrange(4) if depth else 3
        if kind == 0:
            return [value(depth - 1) for _ in range(choose.randrange(4))]
        if kind == 1:
            return {f"{number} {hostile_text(choose)}": value(depth - 1) for number in range(choose.randrange(4))}
        return choose.choice([None, 5, 0.5]) if kind == 2 else hostile_text(choose)

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(inner) for inner in value]
        if isinstance(value, dict):
            return {visible_lines(name): shown(inner) for name, inner in value.items()}
        return visible_lines(value) if isinstance(value, str) else value

    for _ in range(50):
        made = value(4)
        text = json.dumps(made)
        assert json.loads(visible_json(text)) == shown(made)
        assert json.loads(visible_lines(text)) == made


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "utf-16"])
def test_streams_of_any_encoding(encoding: str) -> None:
    for hostile in (*HOSTILE, "→ é 𝄞"):
        for out in (say, say_text):
            stream = io.TextIOWrapper(io.BytesIO(), encoding)
            out(hostile, file=stream)
            stream.flush()
            raw = stream.buffer
            assert isinstance(raw, io.BytesIO)
            assert is_harmless(raw.getvalue().decode(encoding))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_line_stays_one_line(hostile: str) -> None:
    table = Table(hostile, (hostile, "n"), [[hostile, 1], ["x", 2]])
    assert len(table.text().split("\n")) == 4
    assert is_harmless(table.text())
    assert len({len(line) for line in table.text().split("\n")[1:]}) == 1, "aligned as it is seen"
    assert "\n" not in str(LuthierError("no", object=hostile, kernel=hostile))
    assert "\n" not in ProgressLine(hostile).text()
    assert is_harmless(ProgressLine(hostile).text())


# Commands -------------------------------------------------------------------------------------------------------------


def hostile_run(folder: Path, text: str) -> Path:
    """A run folder from elsewhere, with the text in every place for text."""
    stored = text.encode("utf-8", "replace").decode()  # Parquet accepts only UTF-8
    tables = code(stored, 3, text=stored or "x")
    tool = {"tool": text, "options": {text: text}, "tables": [{"title": text, "columns": [text], "rows": [[text]]}]}
    summary = {"command": [text], "tools": [tool], "faults": [text], "devices": [text]}
    process = {"process": 1, "parent": None, "rank": None, "command": text, "launches": 1, "kernels": 1}
    executed = {"kernel": text, "object": text, "digest": text, "wave_instructions": 1, "lane_instructions": 2}
    return write_run(
        folder,
        {**summary, "processes": [process], "executed": [executed]},
        kernels=[kernel(stored, reason=stored, name=stored, object=stored)],
        launches=[launch(stored, 0, 1, 2)],
        **tables,
    )


REPORTS: tuple[list[str], ...] = (
    *([], ["--mangled"], ["--format", "json"], ["--format", "json", "--table", "kernels"], ["--format", "perfetto"]),
    *(["--against", "OTHER"], ["--against", "OTHER", "--format", "json"], ["--trace", "kernels", "--by", "kernel"]),
    *(["--table", "none", "--format", "csv"], ["--format", "csv"], ["--trace", "none"]),
)


@pytest.mark.rows(1)
@pytest.mark.parametrize("hostile", ["".join(HOSTILE), HOSTILE[3]])
def test_reports(hostile: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run, other = hostile_run(tmp_path / "run", hostile), hostile_run(tmp_path / "other", f"other{hostile}")
    for arguments in REPORTS:
        main(["report", str(run), *(str(other) if one == "OTHER" else one for one in arguments)])
        out, err = capfd.readouterr()
        assert is_harmless(out.replace("\x7f", "") if "json" in arguments or "perfetto" in arguments else out), (
            arguments
        )
        assert is_harmless(err), arguments
        assert out or err


def test_csv_is_data_for_programs_and_text_on_terminals(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = hostile_run(tmp_path / "run", HOSTILE[0])
    command = ["report", str(run), "--format", "csv", "--table", "kernels"]
    assert main(command) == 0
    assert HOSTILE[0] in capfd.readouterr().out
    shown = on_terminal(80, command)
    assert is_harmless(shown.replace("\r\n", "\n"))
    assert visible(HOSTILE[0]) in shown


@pytest.mark.parametrize("name", [b"\x1b[2J\x9b\x07", b"\xe2\x80\xae\n\r\x7f"])
def test_names_in_code_objects(name: bytes, fat: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Names of a kernel and of the file, as bytes that are not all UTF-8."""
    path = tmp_path / os.fsdecode(b"odd\xff" + name)
    path.write_bytes(fat.read_bytes().replace(b"caller", name))
    commands: list[list[str | Path]] = [
        ["objects", path],
        ["objects", "--json", path],
        ["disasm", path],
        ["disasm", "--lines", path],
        ["disasm", "--json", path],
        ["lift", path, "--target", "gfx942", "--instructions"],
        ["lift", path, "--target", "gfx942", "--json"],
        ["check", path],
        ["patch", path, "--target", "gfx942", "-t", os.fsdecode(name), "-o", tmp_path / "out"],
        ["objects", tmp_path / os.fsdecode(name)],
        ["objects", path, "--kernel", os.fsdecode(name) + "?"],
        ["merge", path, "-o", tmp_path / "merged"],
    ]
    for arguments in commands:
        main([os.fspath(one) for one in arguments])
        out, err = capfd.readouterr()
        assert is_harmless(out), arguments
        assert is_harmless(err), arguments
        assert out or err


def test_a_capture_is_named_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a\nb").mkdir()
    (tmp_path / "a\nb" / "none.lcap").touch()
    assert main(["replay", str(tmp_path / "a\nb")]) == 2
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith(rf"{tmp_path}/a\u000ab/none.lcap: ")


def test_arguments_that_are_quoted() -> None:
    """`luthier objects *` in an untrusted folder."""
    for arguments in (["objects", "x", *HOSTILE[:2]], [HOSTILE[0]], ["report", "x", "--format", HOSTILE[4]]):
        done = subprocess.run([sys.executable, "-c", MAIN, *arguments], capture_output=True, text=True)
        assert done.returncode == 2
        assert is_harmless(done.stderr)


def test_what_programs_print_is_theirs(tmp_path: Path) -> None:
    script = r"printf '\033[31mred\033[0m\001\377'; printf '\033[2J' >&2"
    command = [sys.executable, "-c", MAIN, "run", "--", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"\x1b[31mred\x1b[0m\x01\xff", b"\x1b[2J")


# Pages ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hostile", ["".join(HOSTILE), HOSTILE[4]])
def test_pages(hostile: str, tmp_path: Path) -> None:
    """In notebooks, and in the pieces of data that the page unpacks."""
    assert is_harmless(markup.table(hostile, [hostile], [[hostile]]))
    run = hostile_run(tmp_path / "run", hostile)
    assert is_harmless(RunFolder(run)._repr_html_())
    out = io.BytesIO()
    write_page(AnalysedRun.of(RunFolder(run)), out)
    page = out.getvalue().decode()
    pieces = re.findall(r'<script type="application/octet-stream" id="data-[\w-]+">([^<]*)</script>', page)
    assert pieces

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [*value, *(text for one in value.values() for text in texts(one))]
        return [text for one in value for text in texts(one)] if isinstance(value, list) else [str(value)]

    for piece in pieces:
        page_texts = texts(json.loads(zlib.decompress(base64.b64decode(piece))))
        assert all(map(is_harmless, page_texts))
