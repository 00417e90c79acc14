"""Run the programs of HeCBench on a virtual device with a release of ROCm, without a tool and under one that counts.

    python benchmarks/run_hecbench.py --checkout HeCBench --case "a.*"
    python benchmarks/run_hecbench.py --checkout HeCBench --case "a.*" --check default,all

Fetch HeCBench (github.com/zjin-lcf/HeCBench) by hand; no part of it is in this repository. hecbench.toml has arguments
for short runs. Programs with an outcome run only with --again. Outcomes are in hecbench.json next to this file, and
each run makes the table between the markers in docs/what-runs.md from them; without --checkout, it does only that. The
output of programs is in build/hecbench/said.

With --check, programs run under `luthier sanitize` instead, once for each of the names. Outcomes are in
hecbench_checks.json, and the table is in docs/sanitize-evidence.md. hecbench.toml has the reason of each finding.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import statistics
import subprocess
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import run_matrix
from run_matrix import ROOT

RESULTS = ROOT / "benchmarks/hecbench.json"
MARKERS = "<!-- HeCBench: made by benchmarks/run_hecbench.py -->", "<!-- end of HeCBench -->"
CHECKED = ROOT / "benchmarks/hecbench_checks.json"
WORK = ROOT / "build/hecbench"
GIVEN = tomllib.loads((ROOT / "benchmarks/hecbench.toml").read_text())
PACKAGES = "libhipcub-dev,libhiprand-dev,libomp-21-dev,librocrand-dev,librocthrust-dev,make"
"""Debian's packages that programs are compiled with: those with kernels for each processor take gigabytes more."""
RIGHT = re.compile(r"\bPASS|SUCCESS|\b[Ss]uccess|[Pp]assed|Test passed|\bcorrect\b|\bVALID\b|[Vv]erified|\(Valid\)")
WRONG = re.compile(
    r"\bFAIL|\b[Ff]ailed\b|\bfail\b|[Mm]ismatch|NOT PASSED|\bincorrect\b|INVALID|\bError at\b"
    r"|\b(?:Error|ERROR): (?![\d.])"
)

SLOW = 3
"""A program that takes this many times as long under checks runs there again."""
REPEATED = 8
"""How often a program runs without a tool, to see whether its number of instructions is always the same."""


@dataclass(frozen=True)
class Setting:
    """Where programs are from, and what they are run above."""

    checkout: Path
    release: str
    target: str
    limit: int
    """Seconds for a run."""
    flags: str = ""
    """More options of hipcc."""

    def command(self, *words: str) -> list[str]:
        """Return the command line of a command above the release."""
        return run_matrix.stack(self.release, PACKAGES, *words, bind=self.checkout)


class NotTried(Exception):
    """A program that cannot run here, with the reason."""


def unpack(setting: Setting, name: str) -> Path:
    """Return a folder with a program's sources next to those of all other programs, which it may use."""
    shutil.rmtree(WORK / "src", ignore_errors=True)
    (WORK / "src").mkdir(parents=True)
    for folder in (setting.checkout / "src").iterdir():
        if folder.name != f"{name}-hip":
            (WORK / "src" / folder.name).symlink_to(folder)
    own = WORK / "src" / f"{name}-hip"
    shutil.copytree(setting.checkout / "src" / own.name, own, symlinks=True)
    return own


def compile_program(setting: Setting, folder: Path) -> Path:
    """Return a program as its own Makefile builds it."""
    if not (folder / "Makefile").exists():
        raise NotTried("has no Makefile in its folder")
    hipcc = f"hipcc --offload-arch={setting.target} -w {setting.flags}".strip()
    make = setting.command("timeout", "240", "make", f"CC={hipcc}", f"HIPCC={hipcc}", f"CXX={hipcc}")
    done = subprocess.run(make, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    output = done.stdout + done.stderr
    (WORK / "said" / f"{folder.name}.make").write_text(output)
    match = re.search(r"^(?:program|EXE|TARGET)\s*:?=\s*(\S+)", (folder / "Makefile").read_text(), re.MULTILINE)
    program = folder / (match[1] if match else "main")
    if done.returncode or not program.is_file():
        raise NotTried(run_matrix.complaint_of_compiler(output, folder))
    return program


def prepare(setting: Setting, name: str) -> tuple[Path, list[str]]:
    """Return a program's folder, and its command line."""
    (WORK / "said").mkdir(parents=True, exist_ok=True)
    if name in GIVEN["not_tried"]:
        raise NotTried(GIVEN["not_tried"][name])
    folder = unpack(setting, name)
    arguments = shlex.split(GIVEN["arguments"].get(name, ""))
    absent = [word for word in arguments if word.startswith("../") and not (folder / word).exists()]
    if absent:
        raise NotTried(f"wants data that is not there: {absent[0].removeprefix('../')}")
    return folder, [str(compile_program(setting, folder)), *arguments]


def run(
    setting: Setting,
    folder: Path,
    options: Sequence[str],
    command: Sequence[str],
    how: str = "run",
    before: Sequence[str] = (),
) -> tuple[int, str]:
    """Return the exit code and the output of a program under `luthier run`, or another command of `luthier`.

    Args:
        setting: of the runs.
        folder: the program runs in it.
        options: of the command of `luthier`.
        command: the program, with its arguments.
        how: the command of `luthier`.
        before: the words before it.
    """
    luthier = [str(ROOT / ".venv/bin/luthier"), how, *options, "--time-limit", str(setting.limit)]
    done = subprocess.run(
        setting.command(*before, *luthier, "--device", f"emu:{setting.target}", "--", *command),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def judge(setting: Setting, code: int, output: str) -> dict[str, object]:
    """Return what a program's end and its own check say."""
    if code == 124:
        return {"what": "not ended", "reason": f"not ended after {setting.limit} s"}
    if code:
        return {"what": "failed", "reason": run_matrix.complaint(output) or f"exit code {code}"}
    wrong = next((line for line in output.splitlines() if WRONG.search(line) and not line.startswith("luthier")), None)
    if wrong:
        return {"what": "failed", "reason": wrong.strip()[:110]}
    return {"what": "passed" if RIGHT.search(output) else "ended"}


def executed(summary: Path) -> int:
    """Return how many instructions of a program's own kernels waves executed, as the device has counted them."""
    kernels = json.loads(summary.read_text())["executed"]
    return sum(one["wave_instructions"] for one in kernels if one["kernel"] and not one["kernel"].startswith("__amd_"))


def counted(summary: Path) -> tuple[int, list[str]]:
    """Return what the tool has counted, and the reasons of kernels that it has not seen."""
    report = json.loads(summary.read_text())
    reasons = [kernel["reason"] for kernel in report["kernels"] if not kernel["skipped"] and not kernel["covered"]]
    return sum(int(variable["value"]) for variable in report["variables"]), [*report["faults"], *reasons]


def compare(setting: Setting, folder: Path, command: Sequence[str], alone: Mapping[str, object]) -> dict[str, object]:
    """Run a program under the tool as well, and return how it counts."""
    summary = WORK / "counted.json"
    summary.unlink(missing_ok=True)
    code, output = run(setting, folder, ("-t", "instr_count:per_wave=true", "--json", str(summary)), command)
    (WORK / "said" / f"{folder.name}.counted").write_text(output)
    under = judge(setting, code, output)
    if under["what"] != alone["what"]:
        return {"counts": "not the same", "counts_reason": str(under.get("reason", under["what"]))}
    number, reasons = counted(summary)
    if reasons:
        return {"counts": "not covered", "counts_reason": str(reasons[0])[:160]}
    if number == alone["instructions"]:
        return {"counts": "equal"}
    again = WORK / "again.json"
    for _ in range(REPEATED):
        run(setting, folder, ("--executed", "--json", str(again)), command)
        if executed(again) != alone["instructions"]:
            return {"counts": "vary", "counts_reason": "another number of instructions in each run without a tool, too"}
    return {"counts": "wrong", "counts_reason": f"{number:,} counted, {alone['instructions']:,} executed"}


def attempt(setting: Setting, name: str) -> dict[str, object]:
    """Compile and run a program, and return its outcome."""
    begun = time.monotonic()
    try:
        folder, command = prepare(setting, name)
    except NotTried as error:
        return {"what": "not tried", "reason": str(error), "seconds": round(time.monotonic() - begun)}
    summary = WORK / "executed.json"
    summary.unlink(missing_ok=True)
    code, output = run(setting, folder, ("--executed", "--json", str(summary)), command)
    (WORK / "said" / folder.name).write_text(output)
    outcome = judge(setting, code, output)
    if summary.exists() and outcome["what"] in ("passed", "ended"):
        outcome["instructions"] = executed(summary)
        if outcome["instructions"]:  # some programs copy, and launch no kernel
            outcome |= compare(setting, folder, command, outcome)
    shutil.rmtree(WORK / "src")
    return outcome | {"seconds": round(time.monotonic() - begun)}


def timed(
    setting: Setting, folder: Path, options: Sequence[str], command: Sequence[str], how: str = "run"
) -> tuple[int, str, float]:
    """Return what `run` does, and the seconds of processor time that the program took with all its processes."""
    times = WORK / "times"
    timing = ["sh", "-c", '"$@"; code=$?; times > "$0"; exit $code', str(times)]
    code, output = run(setting, folder, options, command, how, timing)
    of_children = times.read_text().splitlines()[1]
    seconds = sum(60 * float(minutes) + float(rest) for minutes, rest in re.findall(r"(\d+)m([\d.]+)s", of_children))
    return code, output, round(seconds, 2)


def attempt_checked(setting: Setting, name: str, names: Sequence[str]) -> dict[str, dict[str, object]]:
    """Compile a program, run it without and with checks, and return its outcome under each."""
    try:
        folder, command = prepare(setting, name)
    except NotTried as error:
        return {checks: {"what": "not tried", "reason": str(error)} for checks in names}
    code, output, alone = timed(setting, folder, (), command)
    (WORK / "said" / folder.name).write_text(output)
    plain, outcomes = judge(setting, code, output), {}
    for checks in names:
        outcomes[checks] = dict(plain)
        if plain["what"] in ("passed", "ended", "failed"):
            outcomes[checks] = check(setting, folder, command, checks, {"alone": alone, **plain})
    shutil.rmtree(WORK / "src")
    return outcomes


def check(
    setting: Setting, folder: Path, command: Sequence[str], checks: str, plain: Mapping[str, object]
) -> dict[str, object]:
    """Return the outcome of a program under checks: how it ends, and how many findings of each kind there are.

    A program that takes long runs again, since its first run may have compiled the code that executes instructions.

    Args:
        setting: of the runs.
        folder: the program runs in it.
        command: the program, with its arguments.
        checks: a value of `--check`.
        plain: how it ends without checks, and as `alone` the seconds that it takes.
    """
    summary = WORK / "said" / f"{folder.name}.{setting.target}.{checks}.json"
    summary.unlink(missing_ok=True)
    options = ("--check", checks, "--error-exitcode", "0", "--json", str(summary))
    code, output, seconds = timed(setting, folder, options, command, how="sanitize")
    if code == 0 and seconds > SLOW * float(str(plain["alone"])):
        seconds = min(seconds, timed(setting, folder, options, command, how="sanitize")[2])
    (WORK / "said" / f"{folder.name}.{setting.target}.{checks}").write_text(output)
    outcome = {"alone": plain["alone"], **judge(setting, code, output), "seconds": seconds}
    if summary.exists():
        kinds = Counter(finding["kind"] for finding in json.loads(summary.read_text())["findings"])
        outcome["findings"] = dict(sorted(kinds.items()))
    if outcome["what"] != plain["what"] and plain["what"] != "failed":
        outcome["alone_was"] = plain["what"]
    return outcome


OUTCOMES = {
    "passed": "passed: the program compares its results, and says that they are right",
    "ended": "ended with exit code 0, and says nothing of its results",
    "failed": "failed",
    "not ended": "not ended in time",
    "not tried": "not tried",
}
COUNTS = {
    "equal": "as many instructions counted as executed",
    "vary": "another number of instructions in each run, without a tool, too",
    "not covered": "kernels that the tool has not seen",
    "not the same": "another outcome under the tool",
    "wrong": "another number counted than executed",
}


def table(results: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of the document: of each release and target the programs of each outcome, and why."""
    for (release, target), keys in itertools.groupby(results, lambda key: tuple(key.split("/")[:2])):
        programs = {key.split("/")[2]: results[key] for key in keys}
        compiled = sum(one["what"] != "not tried" for one in programs.values())
        yield f"ROCm {release}, {target}: {len(programs)} programs, of which {compiled} were compiled and run."
        yield ""
        yield "| outcome | programs | which |"
        yield "| --- | ---: | --- |"
        for what, text in OUTCOMES.items():
            those = {name: one.get("reason") for name, one in programs.items() if one["what"] == what}
            yield f"| {text} | {len(those)} | {run_matrix.listed(those)} |"
        yield ""
        yield "| under `instr_count` | programs | which |"
        yield "| --- | ---: | --- |"
        for what, text in COUNTS.items():
            reasons = {name: one.get("counts_reason") for name, one in programs.items() if one.get("counts") == what}
            those = dict.fromkeys(reasons) if what == "vary" else reasons
            if what == "equal":
                yield f"| {text} | {len(those)} | all others that ended |"
            elif those:
                yield f"| {text} | {len(those)} | {run_matrix.listed(those)} |"
        yield ""


OTHER = "other results"
"""In place of a kind: a program's own check fails under checks and not alone."""


def table_of_checks(
    results: Mapping[str, Mapping[str, object]], reasons: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of the document about checks: programs and their times, then each finding with its reason.

    Args:
        results: outcomes by release, target, program and checks with slashes.
        reasons: why there is a finding, by program and kind.
    """
    runs: dict[tuple[str, str, str], dict[str, Mapping[str, object]]] = {}
    reported: dict[tuple[str, str], set[str]] = {}
    for key, outcome in results.items():
        release, target, name, checks = key.split("/")
        if "alone" not in outcome:
            continue  # nothing to compare with: not compiled, or not ended without checks
        runs.setdefault((release, target, checks), {})[name] = outcome
        for kind in kinds_of(outcome):
            reported.setdefault((name, kind), set()).add(f"{target} {checks}")
    yield "| ROCm | target | checks | programs | no finding | only leaks | others | not ended | CPU time | the most |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for setting, programs in runs.items():
        yield f"| {' | '.join(setting)} | {' | '.join(counts_of_checks(programs))} |"
    yield from run_matrix.explained(reported, reasons)


def kinds_of(outcome: Mapping[str, object]) -> set[str]:
    """Return the kinds of findings of a program; `OTHER` is one."""
    findings = outcome.get("findings", {})
    assert isinstance(findings, dict)
    return {*findings, *([OTHER] if outcome["what"] == "failed" and "alone_was" in outcome else [])}


def counts_of_checks(programs: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the cells of a row: how many programs have findings, and how much longer programs take."""
    ended = {name: outcome for name, outcome in programs.items() if outcome["what"] != "not ended"}
    kinds = [kinds_of(outcome) for outcome in ended.values()]
    yield str(len(programs))
    yield str(kinds.count(set()))
    yield str(kinds.count({"leak"}))
    yield str(sum(bool(those - {"leak"}) for those in kinds))
    yield str(len(programs) - len(ended))
    factors = {name: float(str(outcome["seconds"])) / float(str(outcome["alone"])) for name, outcome in ended.items()}
    if not factors:
        yield from ("–", "–")
        return
    worst = max(factors, key=factors.__getitem__)
    yield f"{statistics.median(factors.values()):.1f} times"
    yield f"{worst}: {factors[worst]:.1f} times, {ended[worst]['alone']} s alone"


def main() -> None:
    """Try what is asked for, and write the tables."""
    parser = run_matrix.parser_of(__doc__, "HeCBench", "programs")
    parser.add_argument("--check", default="", help="values of `luthier sanitize --check`, a run each: default,all")
    given = parser.parse_args()
    flags = "-g" * bool(given.check)
    if given.checkout:
        setting = Setting(given.checkout.resolve(), given.release, given.target, given.time_limit, flags)
        for folder in sorted((setting.checkout / "src").glob("*-hip")):
            name = folder.name.removesuffix("-hip")
            if re.fullmatch(given.case, name):
                record(setting, name, given.check.split(",") if given.check else [], given.again)
    run_matrix.write_table(table(run_matrix.recorded(RESULTS)), MARKERS)
    lines = table_of_checks(run_matrix.recorded(CHECKED), GIVEN["findings"])
    run_matrix.write_table(lines, MARKERS, run_matrix.FINDINGS_DOCUMENT)


def record(setting: Setting, name: str, checks: Sequence[str], again: bool) -> None:
    """Try a program, and record its outcomes.

    Args:
        setting: of the runs.
        name: of the program.
        checks: it runs under each of these, or without checks if there are none.
        again: also if there is an outcome.
    """
    path, key = CHECKED if checks else RESULTS, f"{setting.release}/{setting.target}/{name}"
    keys = {f"{key}/{names}": names for names in checks} or {key: ""}
    wanted = {key: names for key, names in keys.items() if again or key not in run_matrix.recorded(path)}
    if not wanted:
        return
    outcomes = attempt_checked(setting, name, list(wanted.values())) if checks else {"": attempt(setting, name)}
    for key, names in wanted.items():
        run_matrix.record(key, outcomes[names], path)
        print(key, outcomes[names], flush=True)


if __name__ == "__main__":
    main()
