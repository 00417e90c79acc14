"""Run test suites on virtual devices with releases of ROCm (scripts/rocm-stack), and record the results.

    python benchmarks/run_matrix.py --release 6.4 --target gfx90a,gfx1100 --suite rocRAND,llama.cpp
    python benchmarks/run_matrix.py --suite MIGraphX --tool ",instr_count,opcode_histogram,memcheck,sanitize,capture"

Instead of a tool, `sanitize` runs the program under `luthier sanitize`, and `capture` captures its launches and replays
them. Under `instr_count`, as many instructions must be counted as the same case executed without a tool. Cases with an
outcome run only with --again. Outcomes are in matrix.json next to this file, and each run makes the table between the
markers in docs/what-runs.md from them; without --suite, it does only that.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from luthier.run.patching import NOTHING_REQUESTED

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


def read_migraphx_tests(output: str) -> Tally | None:
    """Return the results of a program with MIGraphX's own framework; None if it did not end."""
    match = re.search(r"^\[=+\] (\d+) tests ran", output, re.MULTILINE)
    failed = re.findall(r"^\[ +FAILED +\] ([a-z_]\w*)", output, re.MULTILINE)
    return match and Tally(int(match[1]) - len(failed), len(failed), tuple(failed))


def read_nothing(output: str) -> Tally | None:
    """Return the results of a program that checks itself: only its exit code counts."""
    return Tally(1, 0)


def read_migraphx(output: str) -> Tally | None:
    """Return the result of `migraphx-driver verify`, which compares a network's results with the processor's."""
    if "MIGraphX verification passed successfully" in output:
        return Tally(1, 0)
    return Tally(0, 1, ("results differ",)) if "FAILED" in output else None


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
    cases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Case -> command line, if these are not programs of GoogleTest's."""
    wheels: str = ""
    """PyPI's packages, with versions and spaces."""
    with_required: bool = False
    """Whether what the wheels require is installed, too."""

    @property
    def folder(self) -> Path:
        """Return where its wheels are installed."""
        return ROOT / "build/matrix/wheels" / self.wheels.replace(" ", "+")


HARMLESS = (
    "nothing was instrumented|were replaced by counters|were not kept|are not checked by|Expect performance degradation"
    "|Failed to load kernel source"
)
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
NETWORKS = {name: f"build/matrix/{name}.onnx" for name in ("convolutional", "transformer")}
"""Network -> file that the suites which run it write."""
WRITTEN = "mkdir -p build/matrix && " + " && ".join(
    f"/usr/bin/python3 tests/run/foreign/onnx_networks.py {name} {path}" for name, path in NETWORKS.items()
)
# MIOpen calls the compiler of OpenCL where Debian built MIOpen.
OPENCL_COMPILER = "d=/build/reproducible-path/miopen-6.4.3+dfsg/build && mkdir -p $d && ln -sf /usr/bin/clang-21 $d"
# Debian's MIOpen gives -isystem /usr/include, behind which C++ headers do not find those of C.
WITHOUT_HEADERS = {"CCC_OVERRIDE_OPTIONS": "# x-isystem x/usr/include"}
PYTHON = str(ROOT / ".venv/bin/python")
# Without these, each run tries MIOpen's solvers whose intrinsics clang 21 does not have any more.
SOLVERS = {"MIOPEN_DEBUG_CONV_IMPLICIT_GEMM": "0", "MIOPEN_DEBUG_DISABLE_FIND_DB": "1"}
# A library that Debian does not have, whose functions do nothing.
PROFILER = (
    "echo 'ROCTRACER_4.0 { global: *; };' > build/matrix/map"
    " && echo 'void roctracer_start() {} void roctracer_stop() {}' | gcc -shared -fPIC -xc -"
    " -Wl,-soname,libroctracer64.so.4,--version-script=build/matrix/map -o build/matrix/libroctracer64.so.4"
)
COMPILER = "clang-21,lld-21,rocm-device-libs-21"
"""Of MIOpen and MIGraphX, which compile when programs run."""
MIGRAPHX = {"6.4": f"migraphx,migraphx-tests,{COMPILER},python3-onnx"}
SUITES = {
    "MIGraphX": Suite(
        MIGRAPHX,
        cases={name: ("migraphx-driver", "verify", path) for name, path in NETWORKS.items()},
        read=read_migraphx,
        # Debian's hipBLASLt 7.1.1 lacks kernels for gfx1100 that its own tables name.
        environment=WITHOUT_HEADERS | SOLVERS | {"MIGRAPHX_SET_GEMM_PROVIDER": "rocblas"},
        repair=f"{OPENCL_COMPILER} && {WRITTEN}",
    ),
    "ONNX Runtime": Suite(
        {"7.2": f"python3-onnx,libhipblas3,libmiopen1,libhipfft0,librocm-smi64-1,{COMPILER},clang-tools-21,llvm-21"},
        cases={
            name: (PYTHON, "tests/run/foreign/onnx_networks.py", "compare", path, "ROCMExecutionProvider")
            for name, path in NETWORKS.items()
        },
        read=read_nothing,
        wheels="onnxruntime-rocm==1.22.2.post3",
        environment=WITHOUT_HEADERS | SOLVERS | {"LD_LIBRARY_PATH": "build/matrix"},
        repair=f"{OPENCL_COMPILER} && {WRITTEN} && {PROFILER}",
    ),
    "PennyLane": Suite(
        {"7.2": ""},
        cases={"circuit": (PYTHON, "tests/run/foreign/pennylane_circuit.py")},
        read=read_nothing,
        wheels="pennylane-lightning-amdgpu==0.45.0",
        with_required=True,
    ),
    "MIGraphX's tests": Suite(
        MIGRAPHX,
        cases={
            name: (f"/usr/libexec/migraphx/migraphx-tests/test_gpu_{name}",)
            for name in ("codegen_literal", "manage_host_buffer", "quantization", "stream_sync")
        },
        read=read_migraphx_tests,
    ),
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
    "hipRAND": Suite(
        {"7.2": "libhiprand1-tests"},
        "test_hiprand_kernel",
        {
            generator: f"hiprand_kernel_h_{generator}.hiprand_{'uniform' if 'mtgp' in generator else 'init'}"
            for generator in ("philox4x32_10", "mrg32k3a", "xorwow", "mtgp_32")
        },
    ),
    "hipSPARSE": Suite(
        {"7.2": "libhipsparse4-tests"},
        "hipsparse-test",
        {
            "products": "pre_checkin/doti.level1/f32_r_15332_1543_0b",
            "formats": "quick/csr2csc.conversion/f32_r_10_33_num_?b:quick/hyb2csr.conversion/f32_r_10_33_?b",
        },
    ),
    "hipSPARSELt": Suite(
        {"7.2": "hipsparselt-tests"},
        cases={
            name: ("hipsparselt-test", f"--gtest_filter=*quick_{tests}")
            for name, tests in {
                "prune": "prune_small_tile_f16_r_S?_NN_8_8_8_8_CCCC",
                "compress": "compress_small_f16_r_S?_NN_8_8_8_8_CCCC",
                "products": "spmm_small_f16_rf16_rf16_rf16_rf32_r_SA_NN_8_8_8_5_8_8_0_8_8_CCCC",
            }.items()
        },
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
        {"6.4": f"libmiopen1-tests,{COMPILER}"},
        "miopen_gtest",
        {name: f"Smoke/GPU_{tests}" for name, tests in LAYERS.items()},
        environment=WITHOUT_HEADERS,
        repair=OPENCL_COMPILER,
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
    elif suite.cases:
        yield from ((case, list(line)) for case, line in suite.cases.items())
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
    suite: Suite, release: str, target: str, tool: str, limit: int, command: Sequence[str], plain: Mapping[str, object]
) -> dict[str, object]:
    """Run one case, and return its outcome.

    Args:
        suite: of the case.
        release: of ROCm.
        target: of the devices.
        tool: a tool, `sanitize`, `capture`, or nothing.
        limit: seconds for the program.
        command: of the program.
        plain: outcome of the same case without a tool, if it has run.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        code, output = run(suite, release, target, options(tool, limit, folder), limit, command)
        tally = suite.read(output)
        outcome: dict[str, object] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
        if tally is not None:
            outcome |= {"passed": tally.passed, "failed": tally.failed}
        reason = ""
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
                code, output = run(suite, release, target, options("", limit, folder), limit, command)
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


def run(
    suite: Suite, release: str, target: str, luthier: Sequence[str], limit: int, command: Sequence[str]
) -> tuple[int, str]:
    """Return the exit code and the output of a program under Luthier."""
    repaired = ["sh", "-c", f'{suite.repair} && exec env "$@"', "sh"]
    repaired += [f"{name}={value}" for name, value in suite.environment.items()]
    repaired += [f"PYTHONPATH={suite.folder}"] if suite.wheels else []
    devices = ["--device", ",".join([f"emu:{target}"] * suite.devices)]
    words = [*repaired, str(ROOT / ".venv/bin/luthier"), *luthier, *devices, "--", *command]
    done = subprocess.run(
        stack(release, suite.packages[release], *words),
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
        own = [kernel for kernel in results["executed"] if kernel["kernel"] and not is_of_runtime(kernel["kernel"])]
        return {"kernels": len(own), "executed": sum(int(kernel["wave_instructions"]) for kernel in own)}
    if tool == "sanitize":
        return {"findings": len(results["findings"])}
    own = [kernel for kernel in results["kernels"] if not is_of_runtime(kernel["kernel"])]
    # A tool may want nothing of a kernel, as memcheck of one without accesses.
    missed = [kernel["kernel"] for kernel in own if not kernel["covered"] and kernel["reason"] != NOTHING_REQUESTED]
    measured: dict[str, object] = {"kernels": len(own)}
    if tool == "instr_count":
        measured["counted"] = sum(int(variable["value"]) for variable in results["variables"])
    reason = miscount(measured, plain)
    if missed:
        reason = f"not fully instrumented: {', '.join(missed)[:110]}"
    elif tool == "instr_count" and "executed" not in plain:
        reason = "not compared: the number that the case executes without a tool is not known"
    return measured | ({"reason": reason} if reason else {})


def is_of_runtime(kernel: str) -> bool:
    """Return whether HIP launches this kernel itself, to copy and fill memory."""
    return kernel.startswith("__amd_")


def install(suite: Suite) -> None:
    """Install a suite's wheels, if they are not there."""
    if suite.wheels and not suite.folder.exists():
        new = suite.folder.with_name(f"{suite.folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)  # of a run that was interrupted
        options = ["--quiet", "--only-binary=:all:", "--target", str(new)]
        options += [] if suite.with_required else ["--no-deps"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *suite.wheels.split()], check=True)
        new.rename(suite.folder)


def version(suite: Suite, release: str) -> str:
    """Return the version of the first of a suite's wheels, or of Debian's packages in its root."""
    if suite.wheels:
        return suite.wheels.partition("==")[2].partition(" ")[0]
    packages = suite.packages[release]
    first = packages.partition(",")[0]
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
            findings = sum(int(str(case.get("findings", 0))) for case in cases.values())
            counts[tool] = f"{len(cases) - len(failed)} of {len(cases)}{f' ({findings} findings)' * bool(findings)}"
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
        f"In all {runs_passed:,} of {runs:,} runs, of each case alone and under each tool; in these {passed:,} tests "
        f"passed and {failures:,} failed."
    )


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
    parser.add_argument("--tool", default="", help="run under these tools, separated by commas; none: before a comma")
    parser.add_argument("--time-limit", type=int, default=120, help="seconds for a case (default: 120)")
    parser.add_argument("--again", action="store_true", help="also run cases with an outcome")
    given = parser.parse_args()
    (ROOT / "build").mkdir(exist_ok=True)
    asked: Iterable[str] = filter(None, given.suite.split(","))
    for suite, release in itertools.product(asked, given.release.split(",")):
        if suite not in SUITES or release not in SUITES[suite].packages:
            sys.exit(f"there is no suite {suite} of ROCm {release}")
        cases = [(case, line) for case, line in commands(suite, release) if re.fullmatch(given.case, case)]
        install(SUITES[suite])
        of_package = version(SUITES[suite], release)
        for target, (case, line), tool in itertools.product(given.target.split(","), cases, given.tool.split(",")):
            key, results = "/".join((release, target, suite, case, tool)), recorded()
            if given.again or key not in results:
                plain = results.get("/".join((release, target, suite, case, "")), {})
                outcome = attempt(SUITES[suite], release, target, tool, given.time_limit, line, plain)
                outcome |= {"version": of_package} if of_package else {}
                record(key, outcome)
                print(key, outcome, flush=True)
    write_table(table(recorded()))


if __name__ == "__main__":
    main()
