"""Compare results of random vector and scalar operations on the emulated device and on AMD's rocjitsu.

rocjitsu is in https://github.com/ROCm/rocm-systems, emulation/rocjitsu, and is not part of this project. Its README
describes how to run a program; --runner is the command before the program:

    python benchmarks/beside_rocjitsu.py gfx950 --runner "rocjitsu --config configs/gfx950_cdna4_kmd.json --"

Tested only with ``--runner "luthier run --device emu:gfx90a --"``, never with rocjitsu, which silently ends waves at
instructions that it does not decode: these operations count as not executed. Needs hipcc.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from luthier import open_device
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.inspection.samples import samples
from luthier.errors import LuthierError
from luthier.isa import Isa
from luthier.isa.instructions import InstructionFlag

from luthier_build.toolchain import Toolchain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from assembly import function, kernel_text

EDGES = [
    *(0, 1, 2, 31, 32, 63, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0),
    *(0x3F800000, 0xBF800000, 0x3F000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x007FFFFF, 0x4F000000),
    *(0x3C003C00, 0xBC00, 0x7C00, 0xFC007E00, 0x03FF0001, 0x3FF00000, 0x7FF00000, 0x41DFFFFF, 0x3E22F983),
]
ROWS, MARK = 8, 0x5AFE
LEFT_OUT = re.compile(
    r"s_(branch|cbranch|call|set|get|swap|rfe|trap|sleep|endpgm|send|barrier|wait|code|inst|icache|dcache|decperf|incperf|ttrace|nop|"
    r"clause|delay|version|round|denorm|wakeup|prio|sethalt|sub.*_i32_co|\w*saveexec|\w*wrexec|mov_from|movrel|alloc|monitor|memtime)"
    r"|v_(cmpx|movrel|interp|readfirst|nop|clrexcp|swaprel|\w*mfma|\w*wmma|accvgpr|pipeflush)|.*_(dpp8?|sdwa)$"
)
HOST = r"""
#include <hip/hip_runtime.h>
#include <cstdio>
#include <cstdlib>
#define CHECK(call)                                                                                                \
  if (hipError_t error = call) {                                                                                   \
    fprintf(stderr, "%s: %s\n", #call, hipGetErrorString(error));                                                  \
    exit(3);                                                                                                       \
  }
int main(int, char **argv) { // folder, kernels, bytes, lanes: k0.co and so on, launched on the bytes of `in`
  const size_t size = atol(argv[3]);
  char name[4096], *data = static_cast<char *>(malloc(size)), *in = static_cast<char *>(malloc(size));
  snprintf(name, sizeof name, "%s/in", argv[1]);
  FILE *file = fopen(name, "rb");
  if (!file || fread(in, 1, size, file) != size)
    return 3;
  snprintf(name, sizeof name, "%s/out", argv[1]);
  FILE *out = fopen(name, "wb");
  void *buffer, *arguments[] = {&buffer};
  CHECK(hipMalloc(&buffer, size));
  for (int kernel = 0; kernel < atoi(argv[2]); ++kernel) {
    hipModule_t module;
    hipFunction_t entry;
    snprintf(name, sizeof name, "%s/k%d.co", argv[1], kernel);
    CHECK(hipMemcpy(buffer, in, size, hipMemcpyHostToDevice));
    CHECK(hipModuleLoad(&module, name));
    CHECK(hipModuleGetFunction(&entry, module, "k"));
    CHECK(hipModuleLaunchKernel(entry, 1, 1, 1, atoi(argv[4]), 1, 1, 0, nullptr, arguments, nullptr));
    CHECK(hipMemcpy(data, buffer, size, hipMemcpyDeviceToHost));
    fwrite(data, 1, size, out);
    fflush(out);
    CHECK(hipModuleUnload(module));
  }
  return fclose(out);
}
"""


def instruction(text: str, writes: int, random: np.random.Generator) -> str | None:
    """Return an instruction with other registers: sources from v0 and s16 on, results from v8 and s24 on."""
    name, _, operands = text.partition(" ")

    def other(match: re.Match[str], place: int) -> str:
        kind, words = match[1], int(match[3]) - int(match[2]) + 1 if match[3] else 1
        if words > 4:
            raise ValueError(match[0])
        first = (16 if kind == "s" else 0) + (8 if place < writes else 0)
        first += int(random.integers(0, (8 - words) // words + 1)) * words
        return f"{kind}{first}" if words == 1 else f"{kind}[{first}:{first + words - 1}]"

    changed = []
    try:
        for slot, operand in enumerate(operands.split(", ")):
            changed.append(re.sub(r"\b([vs])(?:\[(\d+):(\d+)\]|\d+)", lambda match, at=slot: other(match, at), operand))
    except ValueError:
        return None  # more than is compared
    return f"{name} {', '.join(changed)}"


def kernel_lines(text: str, target: str, lanes: int) -> list[str]:
    """Return a kernel that loads its registers, executes an instruction, and stores what it may have changed."""
    late = int(target[3:-2]) >= 12
    row, wait = 4 * lanes, ["s_wait_loadcnt 0x0", "s_wait_kmcnt 0x0"] if late else ["s_waitcnt vmcnt(0) lgkmcnt(0)"]
    vcc = "vcc" if lanes == 64 else "vcc_lo"
    loads = [f"global_load_dword v{n}, v31, s[2:3] offset:{n * row}" for n in range(ROWS)]
    return [
        *("s_load_dwordx2 s[2:3], s[0:1], 0x0", *wait, "v_and_b32_e32 v31, 0x3ff, v0", "v_lshlrev_b32_e32 v31, 2, v31"),
        *(f"v_mov_b32_e32 v{8 + n}, 0" for n in range(8)),
        *(f"s_mov_b32 s{24 + n}, 0" for n in range(8)),
        *(*loads, "s_load_dwordx8 s[16:23], s[2:3], 0x0", *wait),
        *("s_mov_b64 vcc, s[16:17]" if lanes == 64 else "s_mov_b32 vcc_lo, s16", "s_cmp_lg_u32 s18, s19"),
        *("s_nop 7", text, "s_nop 7", "s_cselect_b32 s4, 1, 0", f"s_mov_b32 s5, {vcc.removesuffix('_lo')}_lo"),
        *("s_nop 7", "s_nop 7", f"s_add_u32 s2, s2, {ROWS * row}", "s_addc_u32 s3, s3, 0"),
        *(f"global_store_dword v31, v{8 + n}, s[2:3] offset:{n * row}" for n in range(8)),
        *(f"s_add_u32 s2, s2, {8 * row}", "s_addc_u32 s3, s3, 0"),
        *(
            line
            for n, source in enumerate((*(f"s{24 + n}" for n in range(8)), "s4", "s5", hex(MARK)))
            for line in (f"v_mov_b32_e32 v30, {source}", f"global_store_dword v31, v30, s[2:3] offset:{n * row}")
        ),
        "s_endpgm",
    ]


def main() -> None:
    """Compare, and print a line for each family of operations in which something is not the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--runner", required=True, help="what stands before a HIP program")
    parser.add_argument("--most", type=int, default=200, help="operations")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    isa, random = Isa.of(args.target), np.random.default_rng(args.seed)
    lanes, wanted = isa.wave_size, InstructionFlag.VALU | InstructionFlag.SALU
    chosen = []
    for number, (code, index) in samples(isa).items():
        opcode, text = isa.opcode(number), isa.text(code, index)
        if (
            opcode.flags & wanted
            and not LEFT_OUT.match(text.split(" ")[0])
            and not LEFT_OUT.match(operation_name(opcode))
        ):
            made = instruction(text, sum(operand.is_def for operand in opcode.operands), random)
            chosen += [(operation_name(opcode), made)] if made else []
    random.shuffle(chosen)
    rows = ROWS + 8 + 11
    inputs = np.zeros((rows, lanes), np.uint32)
    inputs[:ROWS] = np.where(
        random.random((ROWS, lanes)) < 0.6,
        random.choice(np.array(EDGES, np.uint32), (ROWS, lanes)),
        random.integers(0, 1 << 32, (ROWS, lanes), dtype=np.uint32),
    )
    with tempfile.TemporaryDirectory() as name:
        folder, made, ours, refused = Path(name), [], [], 0
        clang = [str(Toolchain.find().clang), "--target=amdgcn-amd-amdhsa", f"-mcpu={args.target}", "-x", "assembler"]
        for operation, text in chosen:
            if len(made) == args.most:
                break
            path = folder / f"k{len(made)}.co"
            source = kernel_text(function("k", kernel_lines(text, args.target, lanes)), args.target)
            command = [*clang, "-mcode-object-version=4", "-", "-o", str(path)]
            if subprocess.run(command, input=source.encode(), capture_output=True).returncode:
                continue  # operands that the assembler rejects
            actual = inputs.copy()
            try:
                open_device(f"emu:{args.target}").load(str(path)).kernel("k").launch(actual, grid=1, block=lanes)
            except LuthierError:
                refused += 1
                continue
            made.append((operation, text))
            ours.append(actual)
        (folder / "in").write_bytes(inputs.tobytes())
        (folder / "host.hip").write_text(HOST)
        subprocess.run(["hipcc", "-O1", str(folder / "host.hip"), "-o", str(folder / "host")], check=True)
        host = [str(folder / "host"), name, str(len(made)), str(inputs.nbytes), str(lanes)]
        (folder / "out").touch()
        status = subprocess.run([*shlex.split(args.runner), *host]).returncode
        theirs = np.zeros((len(made), rows, lanes), np.uint32)
        done = np.fromfile(folder / "out", np.uint32)
        theirs.reshape(-1)[: len(done)] = done
    print(f"{len(made)} operations, {refused} more are refused here; the runner's exit status is {status}")
    families: dict[str, list[str]] = defaultdict(list)
    for (operation, text), own, other in zip(made, ours, theirs, strict=True):
        if not np.array_equal(own, other):
            what = "different" if other[-1, 0] == MARK else "not executed there"
            families["_".join(operation.split("_")[:2])].append(f"    {what}: {text}")
    for family, lines in sorted(families.items()):
        print(family, *lines, sep="\n")


if __name__ == "__main__":
    main()
