"""Run the unit tests of HIP (github.com/ROCm/hip-tests, catch/unit) on a virtual device with a release of ROCm.

    python benchmarks/run_hip_tests.py --checkout hip-tests --folder event,stream

Fetch them by hand; no part of them is in this repository. Each source with tests becomes a program, because one program
for a folder, as in their CMake, would need all sources to compile. A test that ends its program or times out has
failed, and the other tests run without it. Sources with an outcome run only with --again. Outcomes are in
hip_tests.json next to this file, and each run makes the table between the markers in docs/what-runs.md from them;
without --checkout, it does only that. The output of programs is in build/hip-tests/said.
"""

from __future__ import annotations

import html
import itertools
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import run_matrix
from run_matrix import ROOT

RESULTS = ROOT / "benchmarks/hip_tests.json"
MARKERS = "<!-- hip-tests: made by benchmarks/run_hip_tests.py -->", "<!-- end of hip-tests -->"
WORK = ROOT / "build/hip-tests"
MAIN = ("main.cc", "hip_test_context.cc", "hip_test_features.cc")
"""Sources of catch/hipTestMain that each program is linked with."""
TEST = re.compile(r"^(?:TEST_CASE|TEMPLATE_TEST_CASE\w*|HIP_TEST_CASE)\s*\(", re.MULTILINE)
SPECIAL, ESCAPED = r"([,\[\]\\])", r"\\\1"
"""Characters that mean something in what Catch2 is asked for."""
MOST_RUNS = 6
"""Of a program whose tests end it."""


@dataclass(frozen=True)
class Setting:
    """Where the tests are, and what they are run above."""

    checkout: Path
    release: str
    target: str
    limit: int
    """Seconds for a run."""

    def run(self, folder: Path, *words: str) -> tuple[int, str]:
        """Return the exit code and the output of a command with the release."""
        command = run_matrix.stack(self.release, "", *words, bind=self.checkout)
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return done.returncode, done.stdout.decode(errors="replace")

    def compile(self, folder: Path, *words: str) -> str:
        """Run the compiler with the flags of all sources, and return its errors."""
        catch = self.checkout / "catch"
        includes = ("include", "kernels", "external/Catch2", "external/picojson", "hipTestMain")
        # Their CMake defines it in the command line, whose quotes hipcc does not keep.
        defined = WORK / "defined.h"
        defined.write_text(f'#define KERNELS_PATH "{catch}/kernels/"\n')
        options = [
            *(["-include", str(defined)] if "-c" in words else []),
            f"--offload-arch={self.target}",
            "-std=c++17",
            "-O1",
            "-w",
        ]
        code, output = self.run(folder, "hipcc", *options, *(f"-I{catch / one}" for one in includes), *words)
        return output if code else ""


def parts(setting: Setting, folder: Path) -> list[str]:
    """Return the objects that each program of a folder is linked with; make missing ones."""
    (WORK / "main").mkdir(parents=True, exist_ok=True)
    objects = []
    for name in MAIN:
        made = WORK / "main" / f"{name}.o"
        if not made.exists():
            output = setting.compile(WORK, "-c", str(setting.checkout / "catch/hipTestMain" / name), "-o", str(made))
            if output:
                raise SystemExit(output)
        objects.append(str(made))
    for source in sorted(folder.glob("*common*.cc")):
        if not TEST.search(source.read_text()):
            made = WORK / folder.name / f"{source.name}.o"
            if made.exists() or not setting.compile(WORK, "-c", str(source), "-o", str(made)):
                objects.append(str(made))
    return objects


def make_modules(setting: Setting, folder: Path) -> None:
    """Make the code objects that tests of a folder load from their working folder, as its CMake does."""
    text = (folder / "CMakeLists.txt").read_text()
    for options, source, output in re.findall(
        r"CMAKE_CXX_COMPILER\}([^$]*--genco.*?)(\S+)\s+-o\s+(\S+)", text, re.DOTALL
    ):
        made, source = WORK / folder.name / Path(output).name, folder / Path(source).name
        if source.is_file() and not made.exists():
            kept = re.findall(r"-m\S+(?: -amdgpu\S+)?", options)
            words = [word for one in kept for word in one.split()]
            setting.compile(WORK, "--genco", *words, str(source), "-o", str(made))


def verdicts(report: str, ended: bool) -> Iterator[tuple[str, str]]:
    """Yield the tests that Catch2 reports, each with why it failed, or with `unended` where the program broke off."""
    for name, body in re.findall(r'<TestCase name="([^"]+)"[^>]*>(.*?)(?=<TestCase name=|\Z)', report, re.DOTALL):
        name = html.unescape(name)
        result = re.search(r'<OverallResult success="(\w+)"', body)
        if not ended and (result is None or "<FatalErrorCondition" in body):
            yield name, "unended"
        elif result is None or result[1] != "true":
            yield name, complaint(body)
        else:
            yield name, ""


def complaint(body: str) -> str:
    """Return the first comparison that failed, or what was thrown."""
    wrong = re.search(
        r'<Expression success="false"[^>]*>\s*<Original>\s*(.*?)\s*</Original>\s*<Expanded>\s*(.*?)\s*</Expanded>',
        body,
        re.DOTALL,
    )
    other = re.search(r"<(?:Exception|Failure)[^>]*>\s*(.*?)\s*</", body, re.DOTALL)
    reason = other[1] if other else f"{wrong[1]}: {wrong[2]}" if wrong else "no assertion"
    return re.sub(r"\s+", " ", html.unescape(reason))[:110]


def luthier(setting: Setting) -> list[str]:
    """Return the words before a program's own."""
    options = ["--time-limit", str(setting.limit), "--device", f"emu:{setting.target}"]
    return [str(ROOT / ".venv/bin/luthier"), "run", *options, "--"]


def run_once(setting: Setting, program: Path, *chosen: str) -> tuple[dict[str, str], int, bool]:
    """Run a program, and return its tests with why they failed, how many skipped themselves, and whether it ended."""
    report = program.parent / "report.xml"
    report.unlink(missing_ok=True)
    words = [*luthier(setting), str(program), "-r", "xml", "-o", str(report)]
    code, output = setting.run(program.parent, *words, *chosen)
    with open(WORK / "said" / f"{program.parent.name}.{program.name}", "a") as log:
        log.write(output)
    text = report.read_text(errors="replace") if report.exists() else ""
    ended = "</Catch>" in text and "<FatalErrorCondition" not in text  # a signal, of which Catch2 reports
    late = f"not ended after {setting.limit} s" if code == 124 else run_matrix.complaint(output) or f"exit code {code}"
    outcomes = {name: late if why == "unended" else why for name, why in verdicts(text, ended)}
    return outcomes, output.count("HIP_SKIP_THIS_TEST"), ended


def run_tests(setting: Setting, program: Path) -> dict[str, object]:
    """Run a program until each of its tests has a verdict, and return the outcome."""
    outcomes: dict[str, str] = {}
    skipped = 0
    for _ in range(MOST_RUNS):
        new, more, ended = run_once(setting, program, *(f"~{re.sub(SPECIAL, ESCAPED, name)}" for name in outcomes))
        outcomes, skipped = outcomes | new, skipped + more
        if ended or not new:
            break
    # Their CTest runs each by itself, and looks at nothing but the exit code: what one leaves behind is none of the
    # next one's, and processes that a test makes by `fork` break off at their end where there is a report.
    for name in [name for name, why in outcomes.items() if why and not why.startswith("not ended")][:MOST_RUNS]:
        code, _ = setting.run(program.parent, *luthier(setting), str(program), re.sub(SPECIAL, ESCAPED, name))
        if code == 0:
            outcomes[name] = ""
    failed = {name: why for name, why in outcomes.items() if why}
    return {"passed": len(outcomes) - len(failed) - skipped, "skipped": skipped, "failed": failed} | (
        {} if outcomes else {"reason": "no test was run"}
    )


def attempt(setting: Setting, source: Path) -> dict[str, object]:
    """Compile the tests of a source, run them, and return the outcome."""
    begun = time.monotonic()
    folder = WORK / source.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    (WORK / "said").mkdir(exist_ok=True)
    (WORK / "said" / f"{folder.name}.{source.stem}").unlink(missing_ok=True)
    program = folder / source.stem
    linked = parts(setting, source.parent)
    made = str(program.with_suffix(".o"))
    output = setting.compile(WORK, "-c", str(source), "-o", made)
    # By itself: hipcc would take objects beside a source for sources.
    output = output or setting.compile(WORK, made, *linked, "-lhiprtc", "-pthread", "-o", str(program))
    outcome: dict[str, object]
    if output:
        first = re.search(r"error: (.*)|(undefined (?:reference|symbol).*)", output)
        outcome = {"not_compiled": (first[1] or first[2])[:110] if first else "unknown"}
    else:
        make_modules(setting, source.parent)
        outcome = run_tests(setting, program)
        program.unlink()
    return outcome | {"seconds": round(time.monotonic() - begun)}


def table(results: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of the document: a row for each folder of tests."""
    yield "| tests of | ROCm | target | sources | tests passed | skipped by themselves | failed | not compiled |"
    yield "| --- | --- | --- | ---: | ---: | ---: | --- | --- |"
    passed = failures = 0
    for (release, target, folder), keys in itertools.groupby(results, lambda key: tuple(key.split("/")[:3])):
        sources = {key.split("/")[3]: results[key] for key in keys}
        failed: dict[str, object] = {}
        for name, outcome in sources.items():
            failed |= dict(outcome.get("failed", {}))  # type: ignore[call-overload]
            failed |= {name: outcome["reason"]} if "reason" in outcome else {}
        right, skipped = (sum(int(str(one.get(what, 0))) for one in sources.values()) for what in ("passed", "skipped"))
        absent = {name: one["not_compiled"] for name, one in sources.items() if "not_compiled" in one}
        row = (
            folder,
            release,
            target,
            len(sources),
            right,
            skipped,
            run_matrix.listed(failed),
            run_matrix.listed(absent),
        )
        yield f"| {' | '.join(map(str, row))} |"
        passed, failures = passed + right, failures + len(failed)
    yield ""
    yield f"In all {passed:,} tests passed and {failures:,} failed."


def main() -> None:
    """Try what is asked for, and write the table."""
    parser = run_matrix.parser_of(__doc__, "hip-tests", "sources")
    parser.add_argument("--folder", default="", help="folders of catch/unit, separated by commas")
    given = parser.parse_args()
    for folder in filter(None, given.folder.split(",") if given.checkout else ()):
        setting = Setting(given.checkout.resolve(), given.release, given.target, given.time_limit)
        for source in sorted((setting.checkout / "catch/unit" / folder).glob("*.cc")):
            key = "/".join((setting.release, setting.target, folder, source.stem))
            wanted = re.fullmatch(given.case, source.stem) and (given.again or key not in run_matrix.recorded(RESULTS))
            if wanted and TEST.search(source.read_text()):
                outcome = attempt(setting, source)
                run_matrix.record(key, outcome, RESULTS)
                print(key, outcome, flush=True)
        shutil.rmtree(WORK / folder, ignore_errors=True)
    run_matrix.write_table(table(run_matrix.recorded(RESULTS)), MARKERS)


if __name__ == "__main__":
    main()
