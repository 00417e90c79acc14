"""Coverage formats: counts are those of the program's own arithmetic, and coverage tools take the files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from kept import ROOT, kept, run
from luthier import lift, load_object
from luthier.cli.main import main
from luthier.objects.source import ProfilePlace, _discriminated, profile_places
from luthier.report import sample_profile
from luthier.run.folder import RunFolder
from run_folders import kernel, write_run

from luthier_build.compile import compile_application
from luthier_build.toolchain import Toolchain

LOOP = ROOT / "examples/apps/divergent_loop.hip"
IDLE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void idle(int *out) {
  out[threadIdx.x] = 7;
}
"""


@pytest.fixture(scope="module")
def program() -> Path:
    """The example, with one more kernel that it does not launch."""
    text = LOOP.read_text() + IDLE

    def make(output: Path) -> None:
        source = output.with_name("app.hip")
        source.write_text(text)
        command = ["env", "HIP_PLATFORM=amd", "hipcc", "-g", "-O3", "--offload-arch=gfx90a"]
        run([*command, str(source), "-o", str(output)])

    return kept(("coverage", text), make, "app")


def line_of(text: str) -> int:
    return next(at for at, line in enumerate((LOOP.read_text() + IDLE).splitlines(), 1) if text in line)


def lines_of(info: str) -> dict[int, int]:
    return {int(line): int(count) for line, count in re.findall(r"^DA:(\d+),(\d+)$", info, re.MULTILINE)}


def exported(folder: Path) -> dict[str, Any]:
    """Return JSON of a run in the format of LLVM."""
    assert main(["report", str(folder), "--format", "llvm-cov", "-o", str(folder.parent / "cov.json")]) == 0
    return dict(json.loads((folder.parent / "cov.json").read_text()))


def steps() -> tuple[int, int]:
    """Return the steps from odd and from even numbers of the program's sequences."""
    odd = even = 0
    for value in range(1, 301):
        while value != 1:
            odd, even = odd + value % 2, even + (value % 2 == 0)
            value = 3 * value + 1 if value % 2 else value // 2
    return odd, even


def test_counts_are_those_of_the_sequence(program: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each work-item counts the steps of its number; the kernel that did not run has its lines, with 0."""
    ran = run_luthier("run", "-t", "block_profile", "-t", "divergence", "-o", tmp_path / "RUN", "--", program)
    assert ran.returncode == 0, ran.stderr
    odd, even = steps()
    capfd.readouterr()
    assert main(["report", str(tmp_path / "RUN"), "--format", "lcov"]) == 0
    printed = capfd.readouterr()
    counts = lines_of(printed.out)
    assert counts[line_of("value = 3 * value + 1")] == odd
    assert counts[line_of("value /= 2")] == even
    assert counts[line_of("++count")] == odd + even
    assert counts[line_of("steps[i] = count")] == 300
    assert counts[line_of("out[threadIdx.x] = 7")] == 0
    assert "FNDA:384,divergent_loop\n" in printed.out
    assert "FNDA:0,idle\n" in printed.out
    assert printed.err == "luthier report: counts are executions by lanes\n"

    data = exported(tmp_path / "RUN")["data"][0]
    (file,) = data["files"]
    assert {line: count for line, _, count, has, *_ in file["segments"] if has} == counts
    assert data["totals"]["lines"]["covered"] == sum(count > 0 for count in counts.values()) < len(counts)
    assert [(one["name"], one["count"]) for one in data["functions"]] == [("divergent_loop", 384), ("idle", 0)]
    (tmp_path / "c.info").write_text(printed.out)
    if lcov := shutil.which("lcov"):
        done = subprocess.run([lcov, "--summary", "c.info"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert f"({sum(map(bool, counts.values()))} of {len(counts)} lines)" in done.stdout + done.stderr


PROFILED = ("-g", "-O2", "-fdebug-info-for-profiling")
ONE_LINE = """
#include <hip/hip_runtime.h>
__device__ int odd(int v) { return v % 3 == 1; }
__global__ void walk(int *out, int n) {
  int sum = 0;
  for (int k = 0; k < n; ++k) { if (odd(out[k]) && n > 3) sum += out[k + 1] * sum; else out[64 + k] = sum; }
  out[threadIdx.x] = sum;
}
"""
UNROLLED = """
#include <hip/hip_runtime.h>
extern "C" __global__ void unrolled(int *out, int n) {
  int sum = 0;
#pragma unroll 4
  for (int k = 0; k < n; ++k)
    sum = sum * 3 + out[(k * 7 + threadIdx.x) & 63];
  out[threadIdx.x] = sum;
}
int main() {
  int *out;
  (void)hipMalloc(reinterpret_cast<void **>(&out), 4096);
  unrolled<<<1, 64>>>(out, 100);
  return hipDeviceSynchronize();
}
"""


def weights(source: Path, profile: Path) -> set[tuple[int, ...]]:
    """Return the weights of the branches in the code that clang makes with a profile."""
    toolchain = Toolchain.find()
    out = source.with_suffix(".ll")
    flags = ["--cuda-device-only", *PROFILED, "-Xclang", f"-fprofile-sample-use={profile}", "-emit-llvm", "-S"]
    run([str(toolchain.clang), *toolchain.device_flags("gfx90a"), *flags, str(source), "-o", str(out)])
    matches = re.findall(r"branch_weights\", ((?:i32 \d+(?:, )?)+)", out.read_text())
    return {tuple(map(int, re.findall(r"i32 (\d+)", one))) for one in matches}


def test_clang_takes_a_sample_profile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Branches have the weights of the sequence's own steps (LLVM adds one)."""
    source = tmp_path / "app.hip"
    source.write_text(LOOP.read_text())
    command = ["env", "HIP_PLATFORM=amd", "hipcc", *PROFILED, "--offload-arch=gfx90a", str(source)]
    run([*command, "-o", str(tmp_path / "app")])
    ran = run_luthier("run", "-t", "block_profile", "-t", "divergence", "-o", tmp_path / "RUN", "--", tmp_path / "app")
    assert ran.returncode == 0, ran.stderr
    profile = tmp_path / "app.prof"
    assert main(["report", str(tmp_path / "RUN"), "--format", "sample-profile", "-o", str(profile)]) == 0
    assert "counts are executions by lanes" in capfd.readouterr().err
    odd, even = steps()
    declared = line_of("void divergent_loop")
    assert f" {line_of('value /= 2') - declared}: {even}\n" in profile.read_text()
    made = {tuple(sorted(one)) for one in weights(source, profile)}
    assert tuple(sorted((odd + 1, even + 1))) in made
    (tmp_path / "app").unlink()
    assert main(["report", str(tmp_path / "RUN"), "--format", "sample-profile"]) == 1
    assert "is not there, or not the file that ran" in capfd.readouterr().err


@pytest.mark.thorough
def test_an_unrolled_loop_counts_its_iterations(tmp_path: Path) -> None:
    """Four copies of 25 executions each are 100 of the source's line."""
    (tmp_path / "app.hip").write_text(UNROLLED)
    command = ["env", "HIP_PLATFORM=amd", "hipcc", *PROFILED, "--offload-arch=gfx90a", str(tmp_path / "app.hip")]
    run([*command, "-o", str(tmp_path / "app")])
    ran = run_luthier("run", "-t", "block_profile", "-o", tmp_path / "RUN", "--", tmp_path / "app")
    assert ran.returncode == 0, ran.stderr
    assert max(row["executions"] or 0 for row in RunFolder(tmp_path / "RUN").rows("counts")) == 25
    assert main(["report", str(tmp_path / "RUN"), "--format", "sample-profile", "-o", str(tmp_path / "prof")]) == 0
    assert " 4: 100\n" in (tmp_path / "prof").read_text()


def test_blocks_of_one_line_have_discriminators(tmp_path: Path) -> None:
    """Lines of inlined functions count from their own declarations."""
    source, made = tmp_path / "app.hip", tmp_path / "app.hsaco"
    source.write_text(ONE_LINE)
    compile_application(source, "gfx90a", made, flags=PROFILED)
    object = load_object(made)
    lifted = lift(object, next(iter(object.kernels)))
    places = profile_places(object.elf, object.text_ranges, [one.address for one in lifted.instructions])
    assert {place.function for place in places.values()} >= {"_Z4walkPii", "_Z3oddi"}
    assert {place.offset for place in places.values() if place.function == "_Z3oddi"} == {0}
    assert profile_places(object.elf, [], list(places)) == {}  # all code was dropped
    loop = {place.discriminator for place in places.values() if (place.function, place.offset) == ("_Z4walkPii", 2)}
    assert len(loop) > 2


def test_a_profile_of_unknown_files_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = counted_run(tmp_path / "RUN")
    assert main(["report", str(folder), "--format", "sample-profile"]) == 1
    assert "_Z1kv: not in the profile: app is not there, or not the file that ran" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["", "f\n 1: 9", " 1: 9", "#f", "[f]"])
def test_functions_whose_names_a_profile_cannot_have(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such names are only in damaged debug information."""
    places = {256: ProfilePlace(0, name, 1, 0, 1), 260: ProfilePlace(1, "g", 2, 0, 1)}
    monkeypatch.setattr(sample_profile, "_places", lambda *_: places)
    assert main(["report", str(counted_run(tmp_path / "RUN")), "--format", "sample-profile"]) == 0
    printed = capfd.readouterr()
    assert printed.out == "g:192:192\n 2: 192\n"
    assert "1 function left out, whose names cannot be in a profile" in printed.err


@pytest.mark.parametrize(
    ("value", "decoded"), [(0, (0, 1)), (2, (1, 1)), (9, (0, 2)), (0xD0, (40, 1)), (2 | 4 << 8, (1, 4))]
)
def test_discriminators(value: int, decoded: tuple[int, int]) -> None:
    """Base and duplication factor, as DILocation::encodeDiscriminator of LLVM joins them."""
    assert _discriminated(value) == decoded


def counted_run(folder: Path, *, lanes: bool = True, lost: str = "", files: Sequence[str] = ("a.hip",)) -> Path:
    """Write a run of a kernel in which `f` is inlined twice, and line 9 was split into instructions.

    Args:
        files: sources of the code objects that have such a kernel.
    """
    executions = [4, 3, 1, 2, 4]
    at = range(256, 256 + 4 * len(executions), 4)
    rows: dict[str, list[dict[str, Any]]] = {"listings": [], "counts": [], "blocks": []}
    for file in files:
        same = {"kernel": "_Z1kv", "object": "app", "digest": file}
        lines = [(5, None), (2, f"{file}:6:3"), (2, f"{file}:7:3"), (9, None), (9, None)]
        rows["listings"] += [
            {**same, "address": address, "text": "s_nop 0", "kind": "scalar", "block": 0, "live_sgprs": 0}
            | {"live_vgprs": 0, "file": file, "line": line, "inlined": inlined, "user_file": file, "user_line": line}
            | {"user_function": "k"}
            for address, (line, inlined) in zip(at, lines, strict=True)
        ]
        rows["counts"] += [
            {**same, "address": address, "mnemonic": "s_nop", "block": 0, "executions": times}
            | {"active_lanes": 64 * times if lanes else None}
            for address, times in zip(at, executions, strict=True)
        ]
        block = {**same, "block": 0, "function": "_Z1kv", "address": 256, "instructions": 5, "depth": 0, "exit": "end"}
        rows["blocks"].append({**block, "successors": [], "ways": []})
    rows.pop(lost, None)
    return write_run(
        folder, kernels=[kernel("_Z1kv", digest=file, launches=3, instrumented=2) for file in files], **rows
    )


def test_code_objects_with_one_symbol(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = counted_run(tmp_path / "RUN", lanes=False, files=("a.hip", "b.hip"))
    assert main(["report", str(run), "--format", "lcov"]) == 0
    records = capfd.readouterr().out.split("end_of_record\n")
    for file, record in zip(("a.hip", "b.hip"), records, strict=False):
        assert f"SF:{file}\nFN:5,_Z1kv\nFNDA:4,_Z1kv\nFNF:1\n" in record
        assert lines_of(record) == {2: 4, 5: 4, 9: 4}


def test_inlined_copies_are_added(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is not counted, and what cannot be read, is said."""
    assert main(["report", str(counted_run(tmp_path / "RUN", lanes=False)), "--format", "lcov"]) == 0
    printed = capfd.readouterr()
    assert lines_of(printed.out) == {2: 4, 5: 4, 9: 4}
    assert "FN:5,_Z1kv\nFNDA:4,_Z1kv\nFNF:1\nFNH:1\n" in printed.out
    assert "executions by waves\n" in printed.err
    assert "2 of 3 launches are counted" in printed.err
    assert "code that did not run is left out: not found, or not the files that ran: app" in printed.err
    assert main(["report", str(counted_run(tmp_path / "LANES")), "--format", "lcov"]) == 0
    assert lines_of(capfd.readouterr().out) == {2: 256, 5: 256, 9: 256}


@pytest.mark.parametrize(("lost", "says"), [("counts", "has no counts"), ("blocks", "has no source lines")])
def test_a_run_without_counts_is_refused(
    tmp_path: Path, lost: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = counted_run(tmp_path / "RUN", lost=lost)
    assert main(["report", str(folder), "--format", "llvm-cov"]) == 1
    printed = capfd.readouterr()
    assert says in printed.err
    assert printed.out == ""


def test_the_json_is_that_of_llvm(tmp_path: Path) -> None:
    """It has the keys and types of what LLVM exports for a program of the host; newer LLVM has MC/DC in addition."""
    (tmp_path / "a.c").write_text("int f(int a) {\n  return a > 2 ? 1 : 0;\n}\nint main(void) {\n  return f(1);\n}\n")
    flags = ["-fprofile-instr-generate", "-fcoverage-mapping", "a.c", "-o", "a"]
    for number in range(22, 13, -1):
        if shutil.which(f"clang-{number}") and (
            subprocess.run([f"clang-{number}", *flags], cwd=tmp_path, capture_output=True).returncode == 0
        ):
            break
    else:
        pytest.skip("no clang with the runtime of profiles")
    subprocess.run(["./a"], cwd=tmp_path)
    merge = [f"llvm-profdata-{number}", "merge", "default.profraw", "-o", "a.profdata"]
    subprocess.run(merge, cwd=tmp_path, check=True)
    export = [f"llvm-cov-{number}", "export", "a", "-instr-profile=a.profdata"]
    theirs = json.loads(subprocess.run(export, cwd=tmp_path, check=True, stdout=subprocess.PIPE).stdout)
    ours = exported(counted_run(tmp_path / "RUN"))
    assert (ours["type"], ours["version"].split(".")[0]) == (theirs["type"], theirs["version"].split(".")[0])
    assert [one for one in _differences(theirs, ours, "") if "mcdc" not in one] == []


def _differences(theirs: Any, ours: Any, where: str) -> list[str]:
    """Return where two JSON documents differ in keys, or in types of the first elements of lists."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = [f"{where}.{key}" for key in theirs.keys() ^ ours.keys()]
        both = theirs.keys() & ours.keys()
        return keys + [line for key in both for line in _differences(theirs[key], ours[key], f"{where}.{key}")]
    if isinstance(theirs, list) and isinstance(ours, list):
        return _differences(theirs[0], ours[0], f"{where}[]") if theirs and ours else []
    numbers = isinstance(theirs, int | float) and isinstance(ours, int | float)
    return [] if type(theirs) is type(ours) or numbers else [where]
