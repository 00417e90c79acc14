"""Output on terminals: tables that fit, and completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import MAIN
from luthier import Table
from luthier.cli.completion import SHELLS
from luthier.cli.main import COMMANDS, main
from luthier.support.suggestions import did_you_mean
from luthier.support.table import Cell
from run_folders import kernel, write_run
from terminals import on_terminal


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_tables_fit(width: int) -> None:
    """Texts are cut in the middle, the longest first; numbers and short texts never."""
    long = "kernel_" + 30 * "x" + "_end"
    table = Table("t", ("kernel", "object", "n"), [[long, "short", 123456789], ["k", 50 * "y", 5]])
    lines = table.text(width).splitlines()[1:]
    assert all(len(line) <= width for line in lines)
    assert all(part in table.text(width) for part in ("short", "123,456,789", "_end" if width > 60 else "nd"))
    assert (long in table.text(width)) == (width == 200)
    assert table.text(200) == table.text()


def test_columns_of_several_quantities() -> None:
    """Each number has its own decimals, below each other's point; percentages have equally many."""
    rows: list[list[Cell]] = [["a", 22_784, 100, 0.5], ["b", 0.5, 3.25, 1.25], ["c", None, 3, 2.0]]
    lines = Table("", ("what", "run", "%", "mean"), rows).text().split("\n")
    assert lines[1:] == [
        "  a     22,784    100.00  0.50",
        "  b          0.5    3.25  1.25",
        "  c                 3.00  2.00",
    ]


def test_an_option_that_is_nearly_one(capfd: pytest.CaptureFixture[str]) -> None:
    for word, hint in (("--kernels", "--kernel"), ("--outptu=RUN", "--output"), ("--json-file", "--json")):
        with pytest.raises(SystemExit):
            main(["run", word])
        assert capfd.readouterr().err.rstrip().endswith(f"unrecognized arguments: {word}; did you mean '{hint}'?")
    assert did_you_mean("per", ["per_wave", "top"]) == "; did you mean 'per_wave'?"
    assert did_you_mean("pe", ["per_wave"]) == ""


def test_report_fits_the_terminal_and_pipes_get_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "long_" + 100 * "x"
    run = write_run(tmp_path / "run", kernels=[kernel(name, reason="a reason that " + 80 * "z")])
    assert max(map(len, on_terminal(90, ["report", str(run)]).splitlines())) <= 90
    assert main(["report", str(run)]) == 0
    assert name in capfd.readouterr().out


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "command", [["tools", "--json"], ["completion", "bash"], ["report"], ["report", "--format", "json"]]
)
def test_full_disks_are_told(command: list[str], tmp_path: Path) -> None:
    """As an error, once."""
    arguments = [*command, str(write_run(tmp_path / "run", kernels=[kernel("k")]))] if "report" in command else command
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", MAIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, f"luthier {command[0]}: error: No space left on device\n")


def test_what_is_no_run_directory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for folder, reason in ((tmp_path / "none", "it is not a folder"), (tmp_path, "it has no summary.json")):
        assert main(["report", str(folder)]) == 1
        stderr = capfd.readouterr().err
        assert f"{folder} is not a run folder" in stderr
        assert reason in stderr


_ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1='> '; fpath=(\$PWD \$fpath); autoload -U compinit; compinit -u -D; echo rea''dy"
zpty -r shell said '*ready*'
zpty -w -n shell "$1"$'\t'
zpty -r shell said "*$2*"
zpty -d shell
print -r -- "$2"
"""
"""A shell in a terminal of its own, in which the tabulator is pressed; waits for what is wanted."""
ASK = {
    "bash": (
        *("bash", "-c"),
        'source _luthier; COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; _luthier; echo "${COMPREPLY[@]}"',
        "bash",
    ),
    "zsh": ("zsh", "-f", "-c", _ZSH, "zsh"),
    "fish": ("fish", "--no-config", "-c", "source _luthier; complete -C $argv[1]"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capfd.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "against" in script


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["luthier", "rep"], "report"),
        (["luthier", "report", "--ag"], "--against"),
        (["luthier", "report", "--format", "h"], "html"),
        (["luthier", "patch", "prog"], "program"),
        (["luthier", "patch", "program", "-o", "ot"], "other"),
        (["luthier", "report", "ru"], "run_folder"),
        (["luthier", "run", "-t", "some", "--", "./prog"], "./program"),
        (["luthier", "run", "-t", "opcode_h"], "opcode_histogram"),
        (["luthier", "run", "-t", "coalescing:top=3,li"], "coalescing:top=3,line="),
        (["luthier", "run", "--device", "emu:gfx94"], "emu:gfx942"),
        (["luthier", "run", "--device", "emu:gfx90a,emu:gfx94"], "emu:gfx90a,emu:gfx942"),
        (["luthier", "project", "--to", "gfx1100,mi250"], "gfx1100,mi250x"),
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete(
    shell: str, words: list[str], wanted: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Commands, options, files, folders, tools and devices, asked for as each shell does it."""
    assert main(["completion", shell]) == 0
    (tmp_path / "_luthier").write_text(capfd.readouterr().out)
    for name in ("program", "other"):
        (tmp_path / name).touch()
    (tmp_path / "run_folder").mkdir()
    program, *more = ASK[shell]
    typed = words if shell == "bash" else [" ".join(words), wanted]
    places = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fish runs `luthier`
    done = subprocess.run(
        [program, *more, *typed], cwd=tmp_path, env=places, capture_output=True, text=True, timeout=60
    )
    if shell == "bash":  # the part behind the last colon or equals sign
        wanted = wanted.removeprefix(words[-1][: max(map(words[-1].rfind, ":=")) + 1])
    assert wanted in [word.rstrip("/") for word in done.stdout.split()], done.stdout + done.stderr


def test_the_manual_has_the_help_of_every_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["manual"]) == 0
    (page, _) = capfd.readouterr()
    assert all(f'\n.SH "luthier {name}"\n' in page for name in COMMANDS)
    assert "\\-\\-fail\\-if" in page
    lines = [line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))]
    assert {".TH", ".SH", ".nf", ".fi"} <= set(lines) <= {".TH", ".SH", ".TP", ".B", ".nf", ".fi"}
