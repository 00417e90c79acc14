"""Run test suites on virtual devices with releases of ROCm (scripts/rocm-stack), and record the results.

    python benchmarks/run_matrix.py --release 6.4 --target gfx90a,gfx1100 --suite rocRAND,llama.cpp

Cases with an outcome run only with --again. Outcomes are in matrix.json next to this file, and each run makes the table
between the markers in docs/what-runs.md from them; without --suite, it does only that.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/matrix.json"
DOCUMENT = ROOT / "docs/what-runs.md"
MARKERS = "<!-- matrix: made by benchmarks/run_matrix.py -->", "<!-- end of matrix -->"
PROGRAMS = ROOT / "tests/run/programs"
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


def read_nothing(output: str) -> Tally | None:
    """Return the results of a program that checks itself: only its exit code counts."""
    return Tally(1, 0)


@dataclass(frozen=True)
class Suite:
    """Test programs, each of which is a case of a table."""

    packages: Mapping[str, str]
    """Debian's, by release of ROCm, with commas; the first one's folder has the programs of GoogleTest's."""
    programs: str = ""
    """Which of that folder are tried."""
    filters: Mapping[str, str] = field(default_factory=lambda: {"": "*"})
    """Case -> GoogleTest's filter; without one, all tests run."""
    read: Callable[[str], Tally | None] = field(default=read_gtest)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional variables of the environment."""
    repair: str = "true"
    """Shell command that repairs defects of the packages in the root."""
    devices: int = 1
    """Number of devices of a target."""


HARMLESS = "nothing was instrumented|Expect performance degradation"
"""Messages that also correct runs print."""
LARGE = {
    "CONV_2D": r"ne_input=\[1,1,1,2\],",
    "FLASH_ATTN_EXT": r"hsk=64,hsv=64,.*kv=113,nb=1,",
    "MUL_MAT": r"type_a=(f32|f16|q4_0|q8_0),type_b=f32,m=16,n=(1|8),k=256,bs=\[1,1\],",
    "MUL_MAT_ID": r"type_a=(f32|q4_0),type_b=f32,n_mats=4,n_used=2,",
    "ROPE": r"type=f32,ne_a=\[128,32,2,1\]",
}
"""Operations of llama.cpp that are tested partly -> regular expression of their parameters."""
OPERATIONS = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
EVERYWHERE = ("5.7", "6.4", "7.2")
FIRST_TYPES = {"": "*/0.*:*/1.*"}
"""Of suites that are instantiated for dozens of types the first two, in each program."""
TRANSFORMS = {
    "pow2_1D": "len_64_*",
    "pow3_1D": "len_81_*",
    "pow5_1D": "len_125_*",
    "prime_1D": "len_17_*",
    "mix_1D": "len_300_*",
    "pow2_2D": "len_16_16_*",
    "pow2_3D": "len_4_8_4_*",
}
FACTORIZATIONS = ("POTF2", "POTRF", "GETF2", "GETRF", "GEQR2", "GEQRF", "GETRS", "SYTF2", "STEDC", "BDSQR")
LAYERS = {
    "BatchNorm": "BNInferSmall2D_FP32*",
    "Fused": "bn_infer_fused_spatial_FP32*/1?",
    "Kthvalue": "Kthvalue_fwd_FP32*",
    "MultiMarginLoss": "MultiMarginLoss_FP32*",
    "PReLU": "PReLU_bwd_FP32*",
    "TensorOps": "unaryTensorOps_*:Smoke/GPU_binaryTensorOps_*_FP32*",
    "VecAdd": "VecAddTest_FP32*",
    "Naive": "UnitTestConvSolverDirectNaive*",
    "OpenCL": "UnitTestConvSolverOcl*FP32*",
    "GEMM": "UnitTestConvSolverGemm*FP32*",
}
COLLECTIVES = {
    "ProxyTraceTestFixture": "*",
    "CollTraceUtilsTest": "*",
    "Recorder": "*",
    "Standalone": "SplitComms_*:Standalone.CommCuDevice_Check",
    **dict.fromkeys(("AllGather", "AllReduce", "Broadcast"), "OutOfPlace"),
}
SMALL_COLLECTIVES = {
    "HSA_NO_SCRATCH_RECLAIM": "1",
    "UT_DATATYPES": "ncclFloat32",
    "UT_MIN_GPUS": "2",
    "UT_REDOPS": "ncclSum",
    "UT_TIMEOUT_US": "200000000",
}
"""Settings of RCCL's tests on gfx942: one type and operation each, and the time of a call."""
SUITES = {
    "our programs": Suite(dict.fromkeys(("5.2", *EVERYWHERE), ""), read=read_nothing),
    "llama.cpp": Suite({"6.4": "llama.cpp-tests,libggml0-backend-hip,librocrand1-tests"}, read=read_operations),
    "rocRAND": Suite(
        dict.fromkeys(("5.7", "7.2"), "librocrand1-tests")
        | {"6.4": "librocrand1-tests,llama.cpp-tests,libggml0-backend-hip"},
        "test_*",
    ),
    "rocPRIM": Suite(dict.fromkeys(EVERYWHERE, "librocprim-tests"), "test_*", FIRST_TYPES),
    "rocThrust": Suite(dict.fromkeys(EVERYWHERE, "librocthrust-tests"), "test_*", read=read_thrust),
    "hipCUB": Suite(dict.fromkeys(EVERYWHERE, "libhipcub-tests"), "test_*", FIRST_TYPES),
    "rocFFT": Suite(
        dict.fromkeys(EVERYWHERE, "librocfft0-tests"),
        "rocfft-test",
        {name: f"{name}/*_forward_{sizes}" for name, sizes in TRANSFORMS.items()},
    ),
    "rocSPARSE": Suite(
        {"5.7": "librocsparse0-tests", "6.4": "librocsparse1-tests", "7.2": "librocsparse1-tests"},
        "rocsparse-test",
        {"vectors": "*quick*axpyi*:*quick*gthr_*:*quick*doti*", "products": "*quick*csrmv_f32*:*quick*coomv_f32*"},
    ),
    "rocBLAS": Suite(
        {"5.7": "librocblas0-tests", "6.4": "librocblas4-tests,librocsolver0-tests", "7.2": "librocblas5-tests"},
        "rocblas-test",
        {
            "vectors": "*quick*axpy_f32*:*quick*dot_f32*:*quick*scal_f32*",
            "products": "*quick*gemv_*f32*:*quick*gemm_*f32*",
        },
    ),
    "rocSOLVER": Suite(
        dict.fromkeys(("5.7", "7.2"), "librocsolver0-tests") | {"6.4": "librocsolver0-tests,librocblas4-tests"},
        "rocsolver-test",
        {name: f"checkin_lapack/{name}.__float/*" for name in FACTORIZATIONS},
    ),
    "hipBLASLt": Suite(
        {"7.2": "libhipblaslt1-tests"},
        "hipblaslt-test",
        {
            "helpers": "_/aux_test*",
            "extensions": "ExtOpTest*",
            "vectors": "*quick_matmul_one_f32_r*_1_1_*_0_*",
            "products": "*quick_matmul_8_f32_r*",
        },
    ),
    "MIOpen": Suite(
        # Its compiler is called when the tests run.
        {"6.4": "libmiopen1-tests,clang-21,lld-21,rocm-device-libs-21"},
        "miopen_gtest",
        {name: f"Smoke/GPU_{tests}" for name, tests in LAYERS.items()},
        # Debian's MIOpen gives -isystem /usr/include, behind which C++ headers do not find those of C.
        environment={"CCC_OVERRIDE_OPTIONS": "# x-isystem x/usr/include"},
        # It calls the compiler of OpenCL where Debian built it.
        repair="d=/build/reproducible-path/miopen-6.4.3+dfsg/build && mkdir -p $d && ln -sf /usr/bin/clang-21 $d",
    ),
    "RCCL": Suite(
        {"7.2": "librccl1-tests,librccl-dev,libopenmpi-dev,openmpi-bin"},
        "rccl-UnitTests",
        {name: f"{name}.{tests}" for name, tests in COLLECTIVES.items()},
        environment=SMALL_COLLECTIVES,
        devices=2,
    ),
}


def stack(release: str, packages: str, *command: str, bind: Path | None = None) -> list[str]:
    """Return the command line of a command above a release, which may see one more folder."""
    more = [*(["--with", packages] if packages else []), *(["--bind", str(bind)] if bind else [])]
    return [str(ROOT / "scripts/rocm-stack"), release, *more, "--", *command]


def commands(name: str, release: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each case of a suite, with its command line."""
    suite = SUITES[name]
    packages = suite.packages[release]
    if name == "our programs":
        for source in sorted(PROGRAMS.glob("*.hip")):
            if "int main()" in source.read_text() and source.stem not in NOT_ALONE:
                yield source.stem, build(source, release)
    elif name == "llama.cpp":
        text = subprocess.run(stack(release, packages, OPERATIONS, "--list-ops"), capture_output=True, text=True).stdout
        for operation in re.findall(r"^  (\w+)$", text, re.MULTILINE):
            part = ["-p", LARGE[operation]] if operation in LARGE else []
            yield operation, [OPERATIONS, "test", "-b", "ROCm0", "-o", operation, *part]
    else:
        folder = f"/usr/libexec/rocm/{packages.partition(',')[0]}"
        listing = stack(release, packages, "sh", "-c", f"cd {folder} && ls -d {suite.programs}")
        for program in subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True).stdout.split():
            for case, wanted in suite.filters.items():
                chosen = [f"--gtest_filter={wanted}"] if wanted != "*" else []
                yield case or program, [f"{folder}/{program}", *chosen]


def build(source: Path, release: str) -> list[str]:
    """Return the command line of one of our programs, built by the hipcc of a release."""
    output = ROOT / "build/matrix" / release / source.stem
    output.parent.mkdir(parents=True, exist_ok=True)
    # Compilers of earlier releases do not know all targets, and have hiprtc in the library of HIP.
    targets = OFFLOADED if release > "5.7" else [one for one in OFFLOADED if one not in NEWER]
    options = [*(f"--offload-arch={target}" for target in targets), "-O1", "-w", "-pthread"]
    linked = ["-lhiprtc"] if release > "7" else []
    if not output.exists():
        subprocess.run(stack(release, "", "hipcc", *options, str(source), *linked, "-o", str(output)))
    return [str(output)]


def attempt(
    suite: Suite, release: str, target: str, tool: str, limit: int, command: Sequence[str]
) -> dict[str, object]:
    """Run one case, and return its outcome."""
    tools = ["-t", tool] if tool else []
    luthier = [str(ROOT / ".venv/bin/luthier"), "run", *tools, "--time-limit", str(limit)]
    luthier += ["--device", ",".join([f"emu:{target}"] * suite.devices)]
    repaired = ["sh", "-c", f'{suite.repair} && exec env "$@"', "sh"]
    repaired += [f"{name}={value}" for name, value in suite.environment.items()]
    begun = time.monotonic()
    done = subprocess.run(
        stack(release, suite.packages[release], *repaired, *luthier, "--", *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
    )
    output = re.sub(r"\x1b\[[\d;]*m", "", done.stdout.decode(errors="replace"))
    tally = suite.read(output)
    outcome: dict[str, object] = {"seconds": round(time.monotonic() - begun)}
    if tally is not None:
        outcome |= {"passed": tally.passed, "failed": tally.failed}
    if done.returncode == 124:
        return outcome | {"reason": f"not ended after {limit} s"}
    if tally is None or (done.returncode and not tally.failed):
        reason = complaint(output) or f"exit code {done.returncode}"
        return outcome | {"reason": reason.replace(f"{ROOT}/", "")}  # the same wherever the clone is
    if tally.failed:
        return outcome | {"reason": f"{', '.join(tally.names[:3])}{' …' * (tally.failed > 3)}"}
    return outcome


def complaint(output: str) -> str:
    """Return the line of a program's output that best explains its failure."""
    for wanted in (r"^luthier", r"\berror\b|HSA_STATUS|fault by", r"assert|abort|terminate|cannot|not found"):
        for line in output.splitlines():
            if re.search(wanted, line, re.IGNORECASE) and not re.search(HARMLESS, line):
                return line.strip()[:110]
    return ""


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
    """Yield the lines of the table, a row for each suite, stack, target and tool, and of what it sums up to."""
    yield "| suite | ROCm | target | tool | cases passed | tests in them | failed |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"

    def row(key: str) -> tuple[str, str, str, str]:
        release, target, suite, _, tool = key.split("/")
        return suite, release, target, tool

    order, cases_passed, cases_tried = list(SUITES), 0, 0
    for (suite, release, target, tool), keys in itertools.groupby(
        sorted(results, key=lambda key: (order.index(row(key)[0]), row(key))), row
    ):
        cases = {key.split("/")[3]: results[key] for key in keys}
        # An operation that the device's back end does not have is none of the device's.
        tried = {name: one for name, one in cases.items() if "reason" in one or one["passed"]}
        failed = {name: one for name, one in tried.items() if "reason" in one}
        tests = sum(int(str(one.get("passed", 0))) for one in tried.values())
        reasons = "; ".join(f"{name}: {escape(one['reason'])}" for name, one in failed.items())
        count = f"{len(tried) - len(failed)} of {len(tried)}"
        yield f"| {suite} | {release} | {target} | {tool or '–'} | {count} | {tests} | {reasons or '–'} |"
        cases_passed, cases_tried = cases_passed + len(tried) - len(failed), cases_tried + len(tried)
    passed, failures = (sum(int(str(one.get(what, 0))) for one in results.values()) for what in ("passed", "failed"))
    yield ""
    yield f"In all {cases_passed:,} of {cases_tried:,} cases; {passed:,} tests passed and {failures:,} failed."


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


def write_table(lines: Iterable[str], markers: tuple[str, str] = MARKERS) -> None:
    """Put a table into the document."""
    before, begin, rest = DOCUMENT.read_text().partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not (begin and end):
        raise SystemExit(f"{DOCUMENT} has no {markers[0]} … {markers[1]}")
    DOCUMENT.write_text("\n".join([before + begin, "", *lines, "", end + after]))


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
    parser.add_argument("--tool", default="", help="run under this tool")
    parser.add_argument("--time-limit", type=int, default=120, help="seconds for a case (default: 120)")
    parser.add_argument("--again", action="store_true", help="also run cases with an outcome")
    given = parser.parse_args()
    (ROOT / "build").mkdir(exist_ok=True)
    asked: Iterable[str] = filter(None, given.suite.split(","))
    for suite, release in itertools.product(asked, given.release.split(",")):
        if suite not in SUITES or release not in SUITES[suite].packages:
            sys.exit(f"there is no suite {suite} of ROCm {release}")
        cases = [(case, line) for case, line in commands(suite, release) if re.fullmatch(given.case, case)]
        for target, (case, line) in itertools.product(given.target.split(","), cases):
            key = "/".join((release, target, suite, case, given.tool))
            if given.again or key not in recorded():
                outcome = attempt(SUITES[suite], release, target, given.tool, given.time_limit, line)
                record(key, outcome)
                print(key, outcome, flush=True)
    write_table(table(recorded()))


if __name__ == "__main__":
    main()
