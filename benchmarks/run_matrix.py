"""Run test suites and programs on virtual devices with releases of ROCm (scripts/rocm-stack), and record the results.

    python benchmarks/run_matrix.py --release 6.4 --target gfx90a,gfx1100 --suite rocRAND,llama.cpp
    python benchmarks/run_matrix.py --suite MIGraphX --tool ",instr_count,opcode_histogram,memcheck,sanitize,capture"

matrix.toml next to this file has the suites, and where they are from. Instead of a tool, `sanitize` runs the program
under `luthier sanitize`, and `capture` captures its launches and replays them. Under `instr_count`, as many
instructions must be counted as the same case executed without a tool. A case that fails alone is not tried under tools,
and cases with an outcome run only with --again. Outcomes are in matrix.json next to this file, and each run makes the
table between the markers in docs/what-runs.md from them; without --suite, it does only that.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from luthier.run.patching import NOTHING_REQUESTED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/matrix.json"
DOCUMENT = ROOT / "docs/what-runs.md"
MARKERS = "<!-- matrix: made by benchmarks/run_matrix.py -->", "<!-- end of matrix -->"
FINDINGS_MARKERS = "<!-- findings: made by benchmarks/run_matrix.py -->", "<!-- end of findings -->"
FINDINGS_DOCUMENT = ROOT / "docs/sanitize-evidence.md"
PROGRAMS = ROOT / "tests/run/programs"
PYTHON = str(ROOT / ".venv/bin/python")
NOT_ALONE = ("devices", "ranges", "two_units")
"""Programs that need several devices or a roctx library, or have several sources."""
OFFLOADED = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
"""Targets of the project's own programs."""
NEWER = ("gfx942", "gfx1100", "gfx1201")
"""Targets among these that ROCm 5 does not support."""


@dataclass(frozen=True)
class Tally:
    """The results of a suite's program."""

    passed: int
    failed: int
    names: tuple[str, ...] = ()
    """Of the tests that failed."""


def read_gtest(output: str) -> Tally | None:
    """Return the final results of a GoogleTest program; None if it did not end."""
    if not re.search(r"^\[=+\] \d+ tests? from .* ran", output, re.MULTILINE):
        return None
    passed = re.search(r"^\[  PASSED  \] (\d+)", output, re.MULTILINE)
    failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)(?=,|$)", output.partition("[  PASSED  ]")[2], re.MULTILINE)
    return Tally(int(passed[1]) if passed else 0, len(failed), tuple(failed))


def read_thrust(output: str) -> Tally | None:
    """Return the final results of a program with Thrust's framework; None if it did not end."""
    match = re.search(r"Totals: (\d+) failures, \d+ known failures, (\d+) errors, and (\d+) passes", output)
    return match and Tally(int(match[3]), int(match[1]) + int(match[2]))


def read_operations(output: str) -> Tally | None:
    """Return the results of `test-backend-ops` for the device; None if it did not end."""
    match = re.search(r"(\d+)/(\d+) tests passed", output)
    if match is None:
        return None
    failed = re.findall(r"^  (\S+): .*\bFAIL\b", output, re.MULTILINE)
    return Tally(int(match[1]), int(match[2]) - int(match[1]), tuple(failed))


def read_migraphx_tests(output: str) -> Tally | None:
    """Return the results of a program with MIGraphX's own framework; None if it did not end."""
    match = re.search(r"^\[=+\] (\d+) tests ran", output, re.MULTILINE)
    failed = re.findall(r"^\[ +FAILED +\] ([a-z_]\w*)", output, re.MULTILINE)
    return match and Tally(int(match[1]) - len(failed), len(failed), tuple(failed))


def read_nothing(output: str) -> Tally | None:
    """Return the results of a program that checks itself: only its exit code counts."""
    return Tally(1, 0)


def read_clblast(output: str) -> Tally | None:
    """Return the results of a program that compares CLBlast with another BLAS; None if it did not end."""
    counts = {what: re.findall(rf"^ +(\d+) test\(s\) {what}", output, re.MULTILINE) for what in ("passed", "failed")}
    return Tally(*(sum(map(int, numbers)) for numbers in counts.values())) if counts["passed"] else None


def read_migraphx(output: str) -> Tally | None:
    """Return the result of `migraphx-driver verify`, which compares a network's results with the processor's."""
    if "MIGraphX verification passed successfully" in output:
        return Tally(1, 0)
    return Tally(0, 1, ("results differ",)) if "FAILED" in output else None


@dataclass(frozen=True)
class Case:
    """One program with its arguments."""

    command: Sequence[str]
    folder: str = ""
    """Of a checkout, in which it runs."""
    build: str = ""
    """Shell command that compiles the program."""
    program: Path | None = None
    """What it compiles."""
    right: str = ""
    """Regular expression that the output of a right run has."""

    def read(self, suite: Suite, output: str) -> Tally | None:
        """Return the results of the program."""
        tally = suite.read(output)
        if tally is not None and self.right and not re.search(self.right, output, re.MULTILINE):
            return Tally(0, 1, ("the program does not say that its results are right",))
        return tally


@dataclass(frozen=True)
class Suite:
    """Programs of one origin, as matrix.toml describes them."""

    packages: Mapping[str, str]
    programs: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[str], Tally | None] = field(default=read_gtest)
    environment: Mapping[str, str] = field(default_factory=dict)
    repairs: Sequence[str] = ()
    devices: int = 1
    cases: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    wheels: str = ""
    with_required: bool = False
    python: str = PYTHON
    linked: str = ""
    checkout: str = ""
    compiler: str = ""
    right: str = ""
    package: str = ""

    @property
    def installed(self) -> Path:
        """Return where its wheels are installed."""
        return ROOT / "build/matrix/wheels" / self.wheels.replace(" ", "+")

    @property
    def prefix(self) -> Path | None:
        """Return the folder of its interpreter, which the root of a release does not have; None: it is this clone's."""
        if self.python == PYTHON:
            return None
        prefix = Path(self.python).resolve().parents[1]
        if prefix in (Path("/"), Path("/usr")):
            raise SystemExit(f"{self.python} is in {prefix}, of which a release has its own: use one in its own folder")
        return prefix

    @property
    def stand_ins(self) -> Path:
        """Return where libraries are that a module of its wheels is linked with and the packages do not have."""
        return self.installed.with_name(f"{self.installed.name}.stand-ins")

    @property
    def clone(self) -> Path:
        """Return where its checkout is."""
        return ROOT / "build/matrix/checkouts" / self.checkout


def suites() -> tuple[dict[str, Suite], dict[str, str], dict[str, dict[str, str]]]:
    """Return the suites of matrix.toml, the commands that repair defects of packages, and why there are findings."""
    declared = tomllib.loads((ROOT / "benchmarks/matrix.toml").read_text())
    for fields in declared["suites"].values():
        fields["read"] = globals()[f"read_{fields.get('read', 'gtest')}"]
        if "python" in fields:
            fields["python"] = shutil.which(fields["python"]) or fields["python"]
        fields["packages"] = {of: declared["packages"].get(names, names) for of, names in fields["packages"].items()}
    named = {name: Suite(**fields) for name, fields in declared["suites"].items()}
    return named, declared["repairs"], declared["findings"]


HARMLESS = (
    "(?<!error: )nothing was instrumented|were replaced by counters|were not kept|are not checked by"
    "|Expect performance degradation|Failed to load kernel source"
    r"|luthier: (checked|not checked|not looked for|\d+ findings?)"
)
"""Messages that also correct runs print."""
NOT_THERE = re.compile(r"'([^']+)' file not found|cannot find -l(\w+)|library not found for -l(\w+)")
OPERATIONS = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
SUITES, REPAIRS, FINDINGS = suites()


def stack(release: str, packages: str, *command: str, bind: Path | None = None) -> list[str]:
    """Return the command line of a command above a release, which may see one more folder."""
    more = [*(["--with", packages] if packages else []), *(["--bind", str(bind)] if bind else [])]
    return [str(ROOT / "scripts/rocm-stack"), release, *more, "--", *command]


def cases_of(name: str, release: str, target: str) -> Iterator[tuple[str, Case]]:
    """Yield each case of a suite, with its name."""
    suite = SUITES[name]
    packages, programs = suite.packages[release], ROOT / "build/matrix" / release
    if name == "our programs":
        for source in sorted(PROGRAMS.glob("*.hip")):
            if "int main()" in source.read_text() and source.stem not in NOT_ALONE:
                yield source.stem, own_program(source, release, programs / source.stem)
    elif name == "llama.cpp":
        text = subprocess.run(stack(release, packages, OPERATIONS, "--list-ops"), capture_output=True, text=True).stdout
        for operation in re.findall(r"^  (\w+)$", text, re.MULTILINE):
            part = ["-p", suite.filters[operation]] if operation in suite.filters else []
            yield operation, Case([OPERATIONS, "test", "-b", "ROCm0", "-o", operation, *part])
    elif suite.cases:
        for case, given in suite.cases.items():
            yield case, case_of(suite, given, target, programs / target / name / case)
    else:
        folder = f"/usr/libexec/rocm/{packages.partition(',')[0]}"
        listing = stack(release, packages, "sh", "-c", f"cd {folder} && ls -d {suite.programs}")
        for program in subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True).stdout.split():
            for case, wanted in (suite.filters or {"": "*"}).items():
                chosen = [f"--gtest_filter={wanted}"] if wanted != "*" else []
                yield case or program, Case([f"{folder}/{program}", *chosen])


def case_of(suite: Suite, given: str | Mapping[str, str], target: str, program: Path) -> Case:
    """Return a case of matrix.toml for a target.

    Args:
        suite: of the case.
        given: the case in the file.
        target: of the devices.
        program: where it is compiled to, if it has sources.
    """
    fields = {"command": given} if isinstance(given, str) else given
    command, build = fields.get("command", f"{{program}} {fields.get('arguments', '')}"), fields.get("build", "")
    if "sources" in fields:
        build = f"{fields.get('compiler', suite.compiler)} {fields['sources']} -o {{program}}"
    for name, value in (("python", suite.python), ("program", f"'{program}'"), ("target", target)):
        command, build = command.replace(f"{{{name}}}", value), build.replace(f"{{{name}}}", value)
    folder = str(suite.clone / fields.get("folder", "")) if suite.checkout else ""
    return Case(shlex.split(command), folder, build, program if build else None, fields.get("right", suite.right))


def own_program(source: Path, release: str, program: Path) -> Case:
    """Return one of our programs, built by the hipcc of a release."""
    # Compilers of earlier releases do not know all targets, and have hiprtc in the library of HIP.
    targets = OFFLOADED if release > "5.7" else [target for target in OFFLOADED if target not in NEWER]
    options = [*(f"--offload-arch={target}" for target in targets), "-O1", "-w", "-pthread"]
    linked = ["-lhiprtc"] if release > "7" else []
    return Case([str(program)], "", shlex.join(["hipcc", *options, str(source), *linked, "-o", str(program)]), program)


def compile_program(suite: Suite, release: str, case: Case) -> str:
    """Compile a case's program if it is not there, and return why that failed; empty if it did not."""
    if case.program is None or case.program.exists():
        return ""
    case.program.parent.mkdir(parents=True, exist_ok=True)
    line = stack(release, suite.packages[release], "sh", "-c", case.build)
    done = subprocess.run(line, cwd=case.folder or ROOT, capture_output=True, text=True, errors="replace")
    return complaint_of_compiler(done.stdout + done.stderr, case.folder) if done.returncode else ""


def attempt(
    suite: Suite, release: str, target: str, tool: str, limit: int, case: Case, plain: Mapping[str, object]
) -> dict[str, object]:
    """Run one case, and return its outcome.

    Args:
        suite: of the case.
        release: of ROCm.
        target: of the devices.
        tool: a tool, `sanitize`, `capture`, or nothing.
        limit: seconds for the program.
        case: of the suite.
        plain: outcome of the same case without a tool, if it has run.
    """
    begun = time.monotonic()
    outcome: dict[str, object] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    if reason := compile_program(suite, release, case):
        return outcome | {"passed": 0, "failed": 0, "seconds": round(time.monotonic() - begun), "reason": reason}
    with tempfile.TemporaryDirectory() as folder:
        code, output = run(suite, release, target, options(tool, limit, folder), case)
        tally = case.read(suite, output)
        if tally is not None:
            outcome |= {"passed": tally.passed, "failed": tally.failed}
        if code == 124:
            reason = f"not ended after {limit} s"
        elif tally is None or (code and not tally.failed):
            reason = complaint(output) or f"exit code {code}"
            outcome |= {"passed": 0} if suite.read is read_nothing else {}
        elif tally.failed:
            reason = f"{', '.join(tally.names[:3])}{' …' * (tally.failed > 3)}"
        else:
            capture = tool == "capture"
            measured = replayed(Path(folder), output, limit) if capture else facts(tool, Path(folder), plain)
            reason = str(measured.pop("reason", ""))
            outcome |= measured
            if reason and reason == miscount(measured, plain):  # of programs that choose by time, each run may differ
                code, output = run(suite, release, target, options("", limit, folder), case)
                if code:
                    reason += f"; another run failed: {complaint(output) or f'exit code {code}'}"
                else:
                    reason += f", {facts('', Path(folder), {})['executed']} in another run"
    outcome["seconds"] = round(time.monotonic() - begun)
    return outcome | ({"reason": reason.replace(f"{ROOT}/", "")} if reason else {})  # the same wherever the clone is


def options(tool: str, limit: int, folder: str) -> list[str]:
    """Return Luthier's command and its options for a tool, `sanitize`, `capture`, or nothing."""
    files = ["--json", f"{folder}/results.json"]
    wanted = {
        "": ["run", "--executed", *files],
        "sanitize": ["sanitize", "--error-exitcode", "0", *files],
        "capture": ["run", "--capture", "-o", f"{folder}/run"],
        "instr_count": ["run", "-t", "instr_count:per_wave=true", *files],
    }.get(tool, ["run", "-t", tool, *files])
    return [*wanted, "--time-limit", str(limit)]


def run(suite: Suite, release: str, target: str, luthier: Sequence[str], case: Case) -> tuple[int, str]:
    """Return the exit code and the output of a program under Luthier."""
    steps = [*(REPAIRS[name].strip() for name in suite.repairs), *([f"cd '{case.folder}'"] if case.folder else [])]
    if suite.linked:
        script = ROOT / "tests/run/foreign/stand_ins.py"
        (module,) = suite.installed.glob(suite.linked)
        steps.insert(0, shlex.join([PYTHON, str(script), str(module), str(suite.stand_ins)]))
    words = ["sh", "-c", " && ".join([*steps, 'exec env "$@"']), "sh"]
    words += [f"{name}={value}" for name, value in suite.environment.items()]
    words += [f"LD_LIBRARY_PATH={suite.stand_ins}"] if suite.linked else []
    devices = ["--device", ",".join([f"emu:{target}"] * suite.devices)]
    done = subprocess.run(
        stack(
            release,
            suite.packages[release],
            *words,
            str(ROOT / ".venv/bin/luthier"),
            *luthier,
            *devices,
            "--",
            *(["env", f"PYTHONPATH={suite.installed}"] if suite.wheels else []),
            *case.command,
            bind=suite.prefix,
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
    )
    return done.returncode, re.sub(r"\x1b\[[\d;]*m", "", done.stdout.decode(errors="replace"))


def replayed(folder: Path, output: str, limit: int) -> dict[str, object]:
    """Return how many launches a run has captured, and the `reason` if one is missing or its replay differs.

    Args:
        folder: with the run's files.
        output: of the run.
        limit: seconds for the replay of each launch.
    """
    captures = folder / "run/captures"
    measured: dict[str, object] = {"captured": len(list(captures.glob("*")))}
    if refused := re.search(r"\bnot captured: .*", output):
        return measured | {"reason": refused[0][:110]}
    if not measured["captured"]:
        return measured | {"reason": "nothing was captured"}
    replay = [str(ROOT / ".venv/bin/luthier"), "replay", str(captures), "--time-limit", str(limit), "--json"]
    done = subprocess.run(replay, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return measured | ({"reason": complaint(done.stderr) or "replay differs"} if done.returncode else {})


def miscount(measured: Mapping[str, object], plain: Mapping[str, object]) -> str:
    """Return how the counted instructions differ from those of the same case without a tool; empty if they do not."""
    if "counted" not in measured or measured["counted"] == plain.get("executed"):
        return ""
    return f"{measured['counted']} instructions counted, {plain.get('executed')} executed"


def facts(tool: str, folder: Path, plain: Mapping[str, object]) -> dict[str, object]:
    """Return what a run that ended well has measured, and the `reason` if that is wrong.

    Args:
        tool: a tool, `sanitize`, or nothing.
        folder: with the run's files.
        plain: outcome of the same case without a tool.
    """
    results = json.loads((folder / "results.json").read_text())
    if not tool:
        # Rows of an object without a kernel are functions that kernels call; a row without an object is the runtime's.
        own = [row for row in results["executed"] if row["object"] and not is_of_runtime(row["kernel"] or "")]
        executed = sum(int(row["wave_instructions"]) for row in own)
        return {"kernels": sum(row["kernel"] is not None for row in own), "executed": executed}
    if tool == "sanitize":
        return {"findings": dict(Counter(finding["kind"] for finding in results["findings"]))}
    own = [kernel for kernel in results["kernels"] if not is_of_runtime(kernel["kernel"])]
    # A tool may want nothing of a kernel, as memcheck of one without accesses.
    missed = [
        ": ".join(filter(None, (kernel["kernel"], kernel["reason"])))
        for kernel in own
        if not kernel["covered"] and kernel["reason"] != NOTHING_REQUESTED
    ]
    measured: dict[str, object] = {"kernels": len(own)}
    if tool == "instr_count":
        measured["counted"] = sum(int(variable["value"]) for variable in results["variables"])
    reason = miscount(measured, plain)
    if missed:
        reason = f"not fully instrumented: {', '.join(missed)[:200]}"
    elif tool == "instr_count" and "executed" not in plain:
        reason = "not compared: the number that the case executes without a tool is not known"
    return measured | ({"reason": reason} if reason else {})


def is_of_runtime(kernel: str) -> bool:
    """Return whether HIP launches this kernel itself, to copy and fill memory."""
    return kernel.startswith("__amd_")


def install(suite: Suite) -> None:
    """Install a suite's wheels, if they are not there."""
    if suite.wheels and not suite.installed.exists():
        new = suite.installed.with_name(f"{suite.installed.name}.new")
        shutil.rmtree(new, ignore_errors=True)  # of a run that was interrupted
        options = ["--quiet", "--only-binary=:all:", "--target", str(new)]
        options += [] if suite.with_required else ["--no-deps"]
        subprocess.run([suite.python, "-m", "pip", "install", *options, *suite.wheels.split()], check=True)
        new.rename(suite.installed)


def version(suite: Suite, release: str) -> str:
    """Return the version of a suite's first wheel or Debian package, or the commit of its checkout."""
    if suite.wheels:
        return suite.wheels.partition("==")[2].partition(" ")[0]
    if suite.checkout:
        commit = ["git", "-C", str(suite.clone), "rev-parse", "--short=8", "HEAD"]
        return subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    packages = suite.packages[release]
    first = suite.package or packages.partition(",")[0]
    query = stack(release, packages, "dpkg-query", "--show", "--showformat", "${Version}", first)
    return subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout if first else ""


def complaint(output: str) -> str:
    """Return the line of a program's output that best explains its failure."""
    for wanted in (
        r"^luthier",
        r"^ +what\(\):",
        r"\berror\b|HSA_STATUS|fault by",
        r"assert|abort|terminate|cannot|not found|\bdiffer\b",
    ):
        for line in output.splitlines():
            if re.search(wanted, line, re.IGNORECASE) and not re.search(HARMLESS, line):
                return line.strip()[:110]
    return ""


def complaint_of_compiler(output: str, folder: Path | str) -> str:
    """Return why a program was not compiled, without where it lies."""
    missing = NOT_THERE.search(output)
    if missing:
        return f"wants what is not there: {next(filter(None, missing.groups()))}"
    for pattern in (r"error: (.*)", r"(undefined (?:reference|symbol).*)", r"(make: \*\*\* .*)"):
        match = re.search(pattern, output)
        if match:
            return f"does not compile: {match[1].replace(str(folder), '')[:110]}"
    return "does not compile"


def recorded(path: Path = RESULTS) -> dict[str, dict[str, object]]:
    """Return all outcomes so far, by release, target, suite, case and tool with slashes."""
    return json.loads(path.read_text()) if path.exists() else {}


def record(key: str, outcome: Mapping[str, object], path: Path = RESULTS) -> None:
    """Add an outcome to the file; several processes may do so."""
    with open(ROOT / "build/matrix.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = dict(sorted((recorded(path) | {key: dict(outcome)}).items()))
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in results.items()
        )
        new = path.with_suffix(".new")
        new.write_text(f"{{\n{lines}\n}}\n")
        new.replace(path)


def table(results: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of the table, a row for each suite, stack and target, and of what it sums up to."""
    yield "| suite | version | ROCm | target | cases passed | tests in them | passed under tools | failed | date |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"

    def row(key: str) -> tuple[str, str, str]:
        release, target, suite, *_ = key.split("/")
        return suite, release, target

    order, runs_passed, runs = list(SUITES), 0, 0
    for (suite, release, target), keys in itertools.groupby(
        sorted(results, key=lambda key: (order.index(row(key)[0]), row(key))), row
    ):
        counts: dict[str, str] = {}
        reasons: list[str] = []
        # An operation that the device's back end does not have is none of the device's.
        tried = [key for key in keys if "reason" in results[key] or results[key]["passed"]]
        for tool, those in itertools.groupby(sorted(tried, key=tool_of), tool_of):
            cases = {key.split("/")[3]: results[key] for key in those}
            failed = {name: case["reason"] for name, case in cases.items() if "reason" in case}
            reasons += [f"{name}{f' ({tool})' * bool(tool)}: {escape(reason)}" for name, reason in failed.items()]
            seen = sum((Counter(findings_of(case)) for case in cases.values()), Counter())
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(seen.items()))
            counts[tool] = f"{len(cases) - len(failed)} of {len(cases)}{f' ({kinds})' * bool(kinds)}"
            runs_passed, runs = runs_passed + len(cases) - len(failed), runs + len(cases)
        tests = sum(int(str(results[key].get("passed", 0))) for key in tried if not tool_of(key))
        under = ", ".join(f"{tool} {count}" for tool, count in counts.items() if tool)
        of_cases = {what: {str(results[key].get(what, "")) for key in tried} - {""} for what in ("version", "date")}
        versions, date = ", ".join(sorted(of_cases["version"])), max(of_cases["date"], default="")
        yield (
            f"| {suite} | {versions or '–'} | {release} | {target} | {counts.get('', '–')} | {tests} | {under or '–'} "
            f"| {'; '.join(reasons) or '–'} | {date or '–'} |"
        )
    passed, failures = (sum(int(str(one.get(what, 0))) for one in results.values()) for what in ("passed", "failed"))
    yield ""
    yield (
        f"{runs_passed:,} of {runs:,} runs passed: each case alone, and under each tool. In them {passed:,} tests "
        f"passed and {failures:,} failed."
    )


def findings_of(outcome: Mapping[str, object]) -> Mapping[str, int]:
    """Return the number of findings of each kind under `sanitize`."""
    findings = outcome.get("findings", {})
    assert isinstance(findings, dict)
    return findings


def explained(
    reported: Mapping[tuple[str, str], Iterable[str]], reasons: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of a table of findings.

    Args:
        reported: where a program, or suite, has a finding of a kind.
        reasons: why, by program and kind.
    """
    yield from ("", "| program | finding | reported | why |", "| --- | --- | --- | --- |")
    for (name, kind), where in sorted(reported.items()):
        yield f"| {name} | {kind} | {', '.join(sorted(where))} | {reasons.get(name, {}).get(kind, 'not explained')} |"
    yield ""


def table_of_findings(results: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of the table of what `sanitize` reports in the suites, without leaks, which are warnings."""
    reported: dict[tuple[str, str], set[str]] = {}
    for key, outcome in results.items():
        _, target, suite, case, _ = key.split("/")
        for kind in findings_of(outcome).keys() - {"leak"}:
            reported.setdefault((suite, kind), set()).add(f"{case} ({target})")
    return explained(reported, FINDINGS)


def tool_of(key: str) -> str:
    """Return the tool of an outcome."""
    return key.split("/")[4]


def escape(text: object) -> str:
    """Return text escaped for a cell of a table."""
    return re.sub(r"([|<>*_`\[\]])", r"\\\1", str(text))


def listed(reasons: Mapping[str, object]) -> str:
    """Return names in a cell of a table, those with the same reason together before it."""
    groups: dict[object, list[str]] = {}
    for name, reason in sorted(reasons.items(), key=lambda entry: entry[0].lower()):
        groups.setdefault(reason, []).append(name)
    texts = [f"{', '.join(names)}{f': {escape(why)}' if why else ''}" for why, names in groups.items()]
    return "; ".join(texts) or "–"


def write_table(lines: Iterable[str], markers: tuple[str, str] = MARKERS, document: Path = DOCUMENT) -> None:
    """Put a table into a document."""
    before, begin, rest = document.read_text().partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not (begin and end):
        raise SystemExit(f"{document} has no {markers[0]} … {markers[1]}")
    document.write_text("\n".join([before + begin, "", *lines, "", end + after]))


def parser_of(text: str | None, repository: str, cases: str) -> argparse.ArgumentParser:
    """Return the options that programs of a checkout are tried with.

    Args:
        text: of the script's module.
        repository: what the checkout is of.
        cases: what `--case` chooses among.
    """
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument(
        "--checkout", type=Path, help=f"checkout of {repository}; without it, only the table is written"
    )
    parser.add_argument("--release", default="6.4", help="release of ROCm (default: 6.4)")
    parser.add_argument("--target", default="gfx90a", help="target (default: gfx90a)")
    parser.add_argument("--case", default=".*", help=f"regular expression that matches whole names of {cases}")
    parser.add_argument("--time-limit", type=int, default=60, help="seconds for a run (default: 60)")
    parser.add_argument("--again", action="store_true", help="also run cases with an outcome")
    return parser


def main() -> None:
    """Try what is asked for, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", default="6.4", help="releases, separated by commas (default: 6.4)")
    parser.add_argument(
        "--target", default="gfx90a,gfx1100", help="targets, separated by commas (default: gfx90a,gfx1100)"
    )
    parser.add_argument("--suite", default="", help=f"suites, separated by commas: {', '.join(SUITES)}")
    parser.add_argument("--case", default=".*", help="regular expression that matches whole names of cases")
    parser.add_argument("--tool", default="", help="run under these tools, separated by commas; none: before a comma")
    parser.add_argument("--time-limit", type=int, default=120, help="seconds for a case (default: 120)")
    parser.add_argument("--again", action="store_true", help="also run cases with an outcome")
    given = parser.parse_args()
    (ROOT / "build").mkdir(exist_ok=True)
    asked: Iterable[str] = filter(None, given.suite.split(","))
    for suite, release in itertools.product(asked, given.release.split(",")):
        if suite not in SUITES or release not in SUITES[suite].packages:
            sys.exit(f"there is no suite {suite} of ROCm {release}")
        if SUITES[suite].checkout and not SUITES[suite].clone.exists():
            sys.exit(f"clone github.com/{SUITES[suite].checkout} to {SUITES[suite].clone}")
        install(SUITES[suite])
        of_package = version(SUITES[suite], release)
        tried = [(target, *case) for target in given.target.split(",") for case in cases_of(suite, release, target)]
        for (target, name, case), tool in itertools.product(tried, given.tool.split(",")):
            key, results = "/".join((release, target, suite, name, tool)), recorded()
            plain = results.get("/".join((release, target, suite, name, "")), {})
            if tool and "reason" in plain:
                continue  # what fails alone also fails under a tool
            if re.fullmatch(given.case, name) and (given.again or key not in results):
                outcome = attempt(SUITES[suite], release, target, tool, given.time_limit, case, plain)
                outcome |= {"version": of_package} if of_package else {}
                record(key, outcome)
                print(key, outcome, flush=True)
    write_table(table(recorded()))
    write_table(table_of_findings(recorded()), FINDINGS_MARKERS, FINDINGS_DOCUMENT)


if __name__ == "__main__":
    main()
