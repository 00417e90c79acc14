"""The instruction tracer: its streams are those that the emulated device itself steps through."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from assembly import assembled, function, kernel_text
from commands import run_luthier
from kept import ROOT, kept
from luthier import load_object, open_device
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import LuthierError
from luthier.lifting import lift
from luthier.report.sqtt import ThreadTrace
from luthier.report.sqtt_writer import TraceWriter, instruction_code
from luthier.support.processes import run
from pyarrow import parquet

trace_tool = pytest.importorskip("luthier_isa_trace.reading", reason="the tool isa_trace is not installed")
START = np.arange(300, dtype=np.uint32)
NUMBERS = np.arange(200, dtype=np.int32)
LAUNCHES: dict[str, tuple[int, int, Callable[[], tuple[Any, ...]]]] = {
    "divergent_loop": (3, 128, lambda: (START, np.zeros(300, np.uint32), 300)),
    "function_call": (2, 128, lambda: (6 * NUMBERS, 4 * NUMBERS + 8, np.zeros(200, np.int32), 200)),
    "reduction": (8, 256, lambda: (np.ones(2000, np.float32), np.zeros(8, np.float32), 2000)),
}
"""Grid, block and arguments in each program's `main`."""
Streams = dict[tuple[int, int], list[tuple[int, int]]]


@pytest.fixture(scope="module")
def application() -> Callable[..., Path]:
    def build(name: str, target: str, level: str = "-O1") -> Path:
        source = ROOT / "examples" / "apps" / f"{name}.hip"
        command = ["env", "HIP_PLATFORM=amd", "hipcc", f"--offload-arch={target}", level, "-w", str(source), "-o"]
        return kept((*command, source.read_text()), lambda output: run([*command, str(output)]), name)

    return build


def stepped(path: Path, name: str, target: str) -> Streams:
    """Return pc and EXEC of every instruction of each wave, by work-group and wave."""
    streams: Streams = defaultdict(list)

    def trace(step: WaveStep) -> None:
        streams[step.workgroup, step.wave].append((step.address, step.registers.exec))

    device = open_device(f"emu:{target}")
    grid, block, arguments = LAUNCHES[name]
    kernel = device.load(load_object(path, target=target)).kernel(name)
    kernel.launch(*arguments(), grid=grid, block=block, trace=trace)
    return streams


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize(
    ("name", "level"),
    [
        pytest.param(name, level, marks=[pytest.mark.thorough] * (level == "-O0"))  # many times as many steps
        for name in LAUNCHES
        for level in ("-O0", "-O3")
    ],
)
def test_as_the_device_steps(
    application: Callable[..., Path], tmp_path: Path, name: str, level: str, target: str
) -> None:
    program = application(name, target, level)
    done = run_luthier("run", "--device", f"emu:{target}", "-t", "isa_trace", "-o", tmp_path / "run", "--", program)
    assert done.returncode == 0, done
    trace = trace_tool.InstructionTrace(tmp_path / "run")
    streams = {
        (wave.workgroup[0], wave.number): list(
            zip(wave.kernel.pc[wave.instructions].tolist(), wave.exec.tolist(), strict=True)
        )
        for wave in trace.waves()
    }
    assert streams == stepped(program, name, target)
    assert not trace.differences()


@pytest.fixture(scope="module")
def reduced(application: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the traced run of `reduction`, which has waves without lanes."""
    folder = tmp_path_factory.mktemp("traced") / "run"
    done = run_luthier("run", "-t", "isa_trace", "-o", folder, "--", application("reduction", "gfx90a", "-O3"))
    assert done.returncode == 0, done
    return folder


def test_segments_without_lanes_are_restored(reduced: Path) -> None:
    trace = trace_tool.InstructionTrace(reduced)
    waves = list(trace.waves())
    assert not trace.differences()
    without = sum(int((wave.exec == 0).sum()) for wave in waves)
    assert without > 0
    assert trace.restored["reduction"] > 0
    (row,) = (row for table in trace.run.tool_tables() for row in table.rows if row[1] == "reduction")
    assert row[-1] == sum(len(wave.instructions) for wave in waves) - without


def test_addresses_are_those_of_the_lanes(reduced: Path) -> None:
    """LDS: each lane's word; the first half reads what the second half has."""
    for wave in trace_tool.InstructionTrace(reduced).waves():
        texts = [wave.kernel.text[index] for index in wave.instructions.tolist()]
        reads = [access for access in wave.accesses if texts[access.at].startswith("ds_write")]
        for access in reads:
            (addresses,) = access.addresses
            mask = int(wave.exec[access.at])
            assert addresses == {lane: 4 * (64 * wave.number + lane) for lane in range(64) if mask >> lane & 1}
        assert reads


TWO = """
#include <hip/hip_runtime.h>
__global__ void flat(int *to) { to[blockIdx.x] = threadIdx.x; }
__global__ void deep(int *to) { to[blockIdx.x + 2 * blockIdx.z] = threadIdx.x; }
int main() {
  int *to;
  if (hipMalloc(&to, 64) != hipSuccess)
    return 1;
  flat<<<2, 64>>>(to);
  deep<<<dim3(2, 1, 3), 64>>>(to);
  flat<<<1, 64>>>(to);
  return hipDeviceSynchronize();
}
"""


def test_two_kernels_of_an_object_in_three_dimensions(tmp_path: Path) -> None:
    (tmp_path / "two.hip").write_text(TWO)
    run(["env", "HIP_PLATFORM=amd", "hipcc", "--offload-arch=gfx90a", "-O2", "two.hip", "-o", "two"], cwd=tmp_path)
    folder = tmp_path / "run"
    done = run_luthier("run", "-t", "isa_trace", "-o", folder, "--", tmp_path / "two")
    assert done.returncode == 0, done
    trace = trace_tool.InstructionTrace(folder)
    waves = [(wave.kernel.name, wave.launch, *wave.workgroup) for wave in trace.waves()]
    flat = [("_Z4flatPi", 0, 0, 0, 0), ("_Z4flatPi", 1, 0, 0, 0), ("_Z4flatPi", 0, 1, 0, 0)]
    assert sorted(waves) == sorted([*flat, *(("_Z4deepPi", 0, x, 0, z) for x in range(2) for z in range(3))])
    assert not trace.differences()
    summary = folder / "summary.json"
    content = json.loads(summary.read_text())
    for table in content["tools"][0]["tables"]:
        if table["title"] == "kernels":
            for row in table["rows"]:
                row[3] = False  # as of kernels for GFX12 that do not receive the number
    summary.write_text(json.dumps(content))
    with pytest.raises(LuthierError, match="_Z4deepPi: the trace does not tell work-groups of the third"):
        list(trace_tool.InstructionTrace(folder).waves())


def exported(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "luthier_isa_trace", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_for_accel_sim(reduced: Path, tmp_path: Path) -> None:
    assert exported(reduced, "--accel-sim", tmp_path / "new").stdout.endswith("launches: 1\n")
    assert (tmp_path / "new" / "kernelslist.g").read_text() == "kernel-1.traceg\n"
    lines = (tmp_path / "new" / "kernel-1.traceg").read_text().splitlines()
    assert lines[:4] == ["-kernel name = reduction", "-kernel id = 1", "-grid dim = (8,1,1)", "-block dim = (256,1,1)"]
    assert "-shmem = 1024" in lines
    assert [line for line in lines if line.startswith("thread block")] == [f"thread block = {n},0,0" for n in range(8)]
    waves = {(wave.workgroup[0], wave.number): wave for wave in trace_tool.InstructionTrace(reduced).waves()}
    assert sum(int(line.removeprefix("insts = ")) for line in lines if line.startswith("insts")) == sum(
        len(wave.instructions) for wave in waves.values()
    )
    first = lines[lines.index("warp = 0") + 2 :]
    for line, index in zip(first, waves[0, 0].instructions.tolist(), strict=False):
        pc, mask, written, *rest = line.split()
        assert (int(pc, 16), int(mask, 16) >> 64) == (int(waves[0, 0].kernel.pc[index]), 0)
        assert rest[int(written)] == waves[0, 0].kernel.text[index].split()[0]
    (load,) = {line.split(" ", 2)[2] for line in first[: first.index("")] if "global_load" in line}
    assert re.fullmatch(r"1 v\d+ global_load_dword \d [a-z0-9 _]+ 4 1 0x[0-9a-f]+ 4", load)
    again = exported(reduced, "--accel-sim", tmp_path / "new")
    assert again.returncode == 1
    assert "cannot make" in again.stderr


def test_for_ramulator(reduced: Path, tmp_path: Path) -> None:
    """2,000 floats from an aligned buffer are 125 lines of 64 bytes, and 8 sums are eight stores to one."""
    full = exported(reduced, "--ramulator", "/dev/full")
    assert full.returncode == 1
    assert "cannot write /dev/full: No space left on device" in full.stderr
    assert "Traceback" not in full.stderr
    assert exported(reduced, "--ramulator", tmp_path / "lines").returncode == 0
    rows = [line.split() for line in (tmp_path / "lines").read_text().splitlines()]
    stores = [int(address, 16) for kind, address in rows if kind == "ST"]
    assert len(stores) == 8
    assert len(set(stores)) == 1
    loads = Counter(int(address, 16) for kind, address in rows if kind == "LD")
    buffer = {address for address, times in loads.items() if times == 1}
    assert len(buffer) == 125
    assert max(buffer) - min(buffer) == 124 * 64


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("name", ["divergent_loop", "function_call"])
def test_for_viewers_of_thread_traces(application: Callable[..., Path], tmp_path: Path, name: str, target: str) -> None:
    """The hardware's tokens give the classes and branches of each wave, and the addresses after computed jumps."""
    program = application(name, target)
    done = run_luthier("run", "--device", f"emu:{target}", "-t", "isa_trace", "-o", tmp_path / "run", "--", program)
    assert done.returncode == 0, done
    assert exported(tmp_path / "run", "--thread-trace", tmp_path / "traces").stdout.endswith("launches: 1\n")
    (path,) = (tmp_path / "traces").iterdir()
    trace = ThreadTrace(path.read_bytes())
    addresses = [token["pc"] << 2 for token in trace.tokens() if token.kind.name == "NEW_PC"]
    waves = list(trace.waves())
    jumped: list[int] = []
    for wave, own in zip(waves, trace_tool.InstructionTrace(tmp_path / "run").waves(), strict=True):
        pc = own.kernel.pc[own.instructions].tolist()
        texts = [own.kernel.text[index] for index in own.instructions]
        sizes = np.diff(own.kernel.pc, append=own.kernel.pc[-1:])[own.instructions].tolist()
        goes_on = [after == at + size for at, size, after in zip(pc, sizes, pc[1:], strict=False)]
        rows = zip(texts, sizes, [*goes_on, True], strict=True)
        codes = [instruction_code(text, trace.layout, size, not on) for text, size, on in rows]
        assert [step.code for step in wave.steps] == [code for code in codes if code is not None]
        assert wave.whole
        jumped += [after for text, after in zip(texts, pc[1:], strict=False) if re.match("s_(setpc|swappc)", text)]
    assert len(waves) == LAUNCHES[name][0] * LAUNCHES[name][1] // (64 if target == "gfx90a" else 32)
    assert addresses == jumped
    assert bool(jumped) == (name == "function_call")


LOOP = (
    "s_mov_b32 s2, 3",
    "again: s_nop 0",
    "v_add_f32 v1, v1, v1",
    "v_rcp_f32 v1, v1",
    "v_lshlrev_b64 v[2:3], 2, v[2:3]",
    "s_add_u32 s2, s2, -1",
    "s_cmp_lg_u32 s2, 0",
    "s_cbranch_scc1 again",
    "s_endpgm",
)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_tinygrad_maps_thread_traces_to_the_same_addresses(target: str) -> None:
    """tinygrad's viewer follows the tokens through the code object."""
    sqtt = pytest.importorskip("tinygrad.renderer.amd.sqtt")
    thread_trace = pytest.importorskip("luthier_isa_trace.thread_trace")
    code = assembled(kernel_text(function("k", LOOP), target), target)
    lifted = lift(code, "k")
    executed: list[int] = []

    def see(step: WaveStep) -> None:
        executed.append(step.address)

    kernel = open_device(f"emu:{target}").load(code).kernel("k")
    kernel.launch(np.zeros(4, np.uint32), grid=1, block=32, trace=see)
    texts = [str(instruction.text) for instruction in lifted.instructions]
    pc = np.array([instruction.address for instruction in lifted.instructions], np.uint64)
    own = trace_tool.TracedKernel("k", 0, target, 32, pc, texts, pc, {}, {}, {}, pc)
    indices = np.searchsorted(pc, np.array(executed, np.uint64))
    writer = TraceWriter(target)
    for number in range(2):
        wave = trace_tool.TracedWave(own, 0, 0, 0, (0, 0, 0), number, indices, indices.astype(np.uint64))
        thread_trace.write_wave(wave, writer)
    mapped = [info.pc for _, info in sqtt.map_insts(writer.data(), bytes(code.data), target) if info is not None]
    assert len(executed) == 3 * 7 + 2
    assert mapped == 2 * executed


@pytest.mark.parametrize("table", ["steps", "addresses"])
def test_lost_records_are_noticed(reduced: Path, tmp_path: Path, table: str) -> None:
    damaged = shutil.copytree(reduced, tmp_path / "damaged")
    path = damaged / f"trace-{table}.parquet"
    rows = parquet.read_table(path)
    keep = np.arange(rows.num_rows) != 40
    parquet.write_table(rows.filter(pyarrow.array(keep)), path)
    with pytest.raises(LuthierError, match=r"has \d+ records of \d+, and 0 were lost in the run"):
        list(trace_tool.InstructionTrace(damaged).waves())
