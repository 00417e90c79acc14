"""An option of `luthier run` is declared in one place: parser, conditions, summary, text report and page follow."""

from __future__ import annotations

import argparse
import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run_luthier
from luthier.cli.common import add_json_argument
from luthier.cli.main import Parser, every_command, main
from luthier.cli.options import CommandOptions, Need, group, option
from luthier.cli.run import RunOptions
from luthier.errors import LuthierError
from luthier.report.analysis import AnalysedRun
from luthier.report.page import document
from luthier.run.folder import RunFolder
from run_folders import write_run


class Files(CommandOptions):
    """Options that several commands have."""

    sarif: str | None = option("--sarif", metavar="FILE", help="a file")


class Example(CommandOptions):
    """A command with one of each."""

    check: str | None = option("--check", in_summary=True, instead="look by hooks", help="what to look for")
    files: Files = group(Files, title="checks", needs=Need(("check",), "is about checks: name them with --check"))
    kernel: list[str] = option("-k", "--kernel", default=[], action="append", in_summary=True, help="names")
    hoist: bool | None = option("--hoist", action=argparse.BooleanOptionalAction, in_summary=True, help="quicker")
    program: list[str] = option("program", default=[], nargs=argparse.REMAINDER, help="what to run")


def read(*words: str) -> Example:
    """Options of a command line."""
    parser = argparse.ArgumentParser()
    Example.declare(parser)
    return Example.read(parser.parse_args(words))


@pytest.mark.parametrize("name", ["--json", "--jso", "--j"])
def test_an_abbreviated_option_takes_no_input_for_its_file(tmp_path: Path, name: str) -> None:
    """Only a name that ends with .json is the file of ``--json``."""
    parser = Parser()
    add_json_argument(parser, "all")
    parser.add_argument("files", nargs="*")
    out = str(tmp_path / "out.json")
    for words, expected in (
        ([name, "a.hsaco", "b.hsaco"], ("-", ["a.hsaco", "b.hsaco"])),
        ([name, out, "b.hsaco"], (out, ["b.hsaco"])),
        ([f"{name}={out}", "b.hsaco"], (out, ["b.hsaco"])),
        (["--", name], (None, [name])),
    ):
        parsed = parser.parse_args(words)
        assert (parsed.json, parsed.files) == expected


def test_a_number_is_no_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--size", f"--json={tmp_path / 'out.json'}"]) == 1
    assert "--size prints one number" in capsys.readouterr().err


def test_what_is_declared_is_parsed_checked_and_summed_up() -> None:
    assert read("app", "-x") == Example.defaults().but(program=["app", "-x"])
    given = read("--check", "race", "--sarif", "s", "-k", "a", "-k", "b", "--no-hoist", "app")
    assert (given.files.sarif, given.kernel, given.hoist) == ("s", ["a", "b"], False)
    assert given.summary() == {"check": "race", "kernel": ["a", "b"], "hoist": False}
    with pytest.raises(TypeError, match="Example has no option chekc"):
        Example(chekc="race")  # type: ignore[call-arg]
    with pytest.raises(LuthierError, match="--sarif is about checks: name them with --check"):
        read("--sarif", "s")
    with pytest.raises(LuthierError, match="--check works on virtual devices only; look by hooks"):
        given.check_on_gpus()
    read("-k", "a").check_on_gpus()
    assert read().kernel is not read().kernel


def test_every_option_has_a_help_and_an_existing_need() -> None:
    fields = {name for name, _, _ in RunOptions.defaults().given()}
    for name, _, declared in RunOptions.defaults().given():
        assert declared.argument["help"], name
        assert declared.needs is None or fields.issuperset(declared.needs.options), name


def test_options_are_in_every_report(tmp_path: Path) -> None:
    options = {"kernel": ["gemm*", "!a b"], "unique-grid": True, "hoist": False, "launches": "::100"}
    run = write_run(tmp_path / "run", {"options": options, "ended_before": "kernel k"})
    words = "--kernel 'gemm*' --kernel '!a b' --unique-grid --no-hoist --launches ::100"
    assert document(AnalysedRun.of(RunFolder(run)))[0]["options"] == words
    shown = run_luthier("report", run).stdout
    assert words in shown
    assert "the run was stopped before kernel k ended" in shown
    assert json.loads(run_luthier("report", run, "--format", "json").stdout)["summary"]["options"] == options


MEANS_TWO_THINGS = {
    "--output": "its metavar says what is written",
    "--against": "a capture with a capture, a run with a run",
    "--device": "of programs several",
    "--by": "report groups by any columns, project by kernels or lines",
    "--project": "build reads the folder of a project, run takes GPUs",
    "--target": "code for one target is read, for several built",
}


def actions() -> Iterator[tuple[str, argparse.Action]]:
    """Every option of every command."""
    for name, (module, _) in every_command().items():
        parser = argparse.ArgumentParser(prog=f"luthier {name}")
        importlib.import_module(module).add_arguments(parser)
        yield from ((name, action) for action in parser._actions)


def test_an_option_means_the_same_on_every_command() -> None:
    forms = defaultdict(set)
    for _, action in actions():
        for flag in action.option_strings:
            if action.help != argparse.SUPPRESS and flag.startswith("--"):
                forms[flag].add((type(action).__name__, str(action.metavar)))
    assert len(forms) > 60
    assert {flag for flag, kinds in forms.items() if len(kinds) > 1} <= MEANS_TWO_THINGS.keys()


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        (["sanitize", "{}", "race"], "--checks", "--check"),
        (["run", "{}", "0", "-t", "instr_count"], "--devices", "--device-numbers"),
        (["check", "{}", "waits", "absent"], "--only", "--check"),
        (["verify", "absent", "-t", "instr_count", "{}", "absent"], "--launch", "--plan"),
        (["verify", "absent", "-t", "instr_count", "{}", "absent"], "--write-launch", "--write-plan"),
        (["replay", "absent.lcap", "{}", "absent"], "--object", "--with-object"),
        (["diff", "absent.lcap", "{}", "absent"], "--object", "--with-object"),
        (["minimise", "absent.lcap", "-o", "out", "{}", "5"], "--time-limit", "--budget"),
    ],
)
def test_earlier_spellings_do_the_same_and_say_so(command: list[str], before: str, after: str, tmp_path: Path) -> None:
    old, new = (run_luthier(*(word.format(flag) for word in command), before=()) for flag in (before, after))
    note = f"luthier {command[0]}: {before} is now {after}; the next release does not accept {before}\n"
    assert (old.returncode, old.stdout, old.stderr) == (new.returncode, new.stdout, note + new.stderr)
    assert old.returncode != 0


def test_hidden_spellings_are_in_no_help() -> None:
    hidden = {flag for _, action in actions() if action.help == argparse.SUPPRESS for flag in action.option_strings}
    assert {"--checks", "--only", "--devices"} <= hidden
    assert "--checks" not in run_luthier("sanitize", "--help").stdout
