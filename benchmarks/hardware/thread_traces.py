"""Hold the emulated device's instruction streams against thread traces of GPUs.

Each traced wave of a GPU is compared with the streams that the emulated device executes of the same object: number,
order and class of instructions, and whether each branch was taken. Waves and counters of VALU and SALU instructions are
compared, too. As a control one instruction is taken out of each stream: no traced wave may still be equal.

Use: python benchmarks/hardware/thread_traces.py CHECKOUT    (of tinygrad/tinygrad, MIT licence)
Exit code 1: something differs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import luthier
import numpy as np
from luthier import Table
from luthier.support.processes import run

sys.path.insert(0, os.fspath(Path(__file__).parent))
from captures import CapturedKernel, captured_kernels, loadable

LAUNCHES = {
    "E": ((1,), 1, 0),
    "E_3": ((1,), 3, 3),
    "E_32_4": ((1,), 32, 1),
    "r_32_32_16_2": ((32, 32), 16, 3),
    "custom_lds_sync": ((1,), 128, 1),
    "custom_handwritten": ((1,), 128, 1),
}
"""By kernel: grid in work-groups, work-items of a work-group, pointer arguments."""

_RDNA = (
    (r"s_(delay_alu|wait_alu|barrier_wait|code_end)", None),  # these leave no token
    (r"s_endpgm", "END"),
    (r"s_(wait|nop|clause|sleep|setprio|set_inst)", "IMMEDIATE"),
    (r"s_barrier", "BARRIER"),
    (r"s_(c?branch)", "BRANCH"),
    (r"s_(buffer_)?load", "SMEM"),
    (r"s_sendmsg", "MESSAGE"),
    (r"s_", "SALU"),
    (r"ds_load", "LDS_RD"),
    (r"ds_", "LDS_WR"),
    (r"(global|flat|buffer)_load", "MEMORY_RD"),
    (r"(global|flat|buffer)_store", "MEMORY_WR"),
    (r"v_", "VALU"),
)
_CDNA = (
    (r"s_(waitcnt|nop|sleep|barrier|setprio)", None),
    (r"s_endpgm", "OTHER_MSG"),
    (r"s_(c?branch)", "BRANCH"),
    (r"s_load", "SMEM"),
    (r"ds_", "LDS"),
    (r"(global|flat|buffer)_load", "MEMORY_RD"),
    (r"(global|flat|buffer)_store", "MEMORY_WR"),
    (r"s_", "SALU_{bits}"),
    (r"v_", "VALU_{bits}"),
)


def tokens_of(stream: list[tuple[int, str]], target: str) -> tuple[str, ...]:
    """Return the tokens that a wave's instructions leave in a thread trace.

    Args:
        stream: addresses and texts in the order of execution.
    """
    tokens = []
    following = [address for address, _ in stream[1:]] + [stream[-1][0] + 4]
    for (address, text), after in zip(stream, following, strict=True):
        token = next(
            token for pattern, token in (_CDNA if target.startswith("gfx9") else _RDNA) if re.match(pattern, text)
        )
        if token == "BRANCH":
            token = "NOT TAKEN" if after == address + 4 else "TAKEN"
        if token is not None:
            tokens.append(token.format(bits=8 * min(after - address, 8)) if "{" in token else token)
    return tuple(tokens)


def emulated(kernel: CapturedKernel, folder: Path) -> tuple[luthier.emulator.LaunchStats, set[tuple[str, ...]]]:
    """Return counts, and the different token streams of all waves, of a launch on the emulated device."""
    grid, block, arguments = LAUNCHES[kernel.name]
    data: bytes | Path = kernel.elf
    if kernel.name.startswith("custom_"):
        source, data = folder / "kernel.s", folder / "kernel.hsaco"
        source.write_text(loadable(kernel, arguments, block))
        assemble = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={kernel.target}", "-filetype=obj", source]
        run([*assemble, "-o", folder / "kernel.o"])
        run(["ld.lld-22", "-shared", folder / "kernel.o", "-o", data])
    device = luthier.open_device(f"emu:{kernel.target}", threads=1)
    streams: defaultdict[tuple[int, int], list[tuple[int, str]]] = defaultdict(list)

    def see(step: luthier.emulator.WaveStep) -> bool:
        streams[step.workgroup, step.wave].append((step.address, step.text))
        return True

    pointers = [np.ones(1024, np.float32) for _ in range(arguments)]
    stats = device.load(data).kernel(kernel.name).launch(*pointers, grid=grid, block=block, trace=see)
    return stats, {tokens_of(stream, kernel.target) for stream in streams.values()}


def main() -> int:
    """Print a row for each kernel of each capture, and a sum."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows, sums = [], Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kernel in captured_kernels(Path(sys.argv[1])):
            if kernel.name not in LAUNCHES:
                print(f"{kernel.capture}: no launch is known of {kernel.name}", file=sys.stderr)
                sums["unknown kernels"] += 1
                continue
            stats, streams = emulated(kernel, Path(folder))
            equal = [wave for wave in kernel.traced if tuple(wave.tokens) in streams]
            without = {stream[:at] + stream[at + 1 :] for stream in streams for at in range(len(stream))}
            counted = {
                "SQ_INSTS_VALU": sum(count for name, count in stats.opcodes.items() if name.startswith("v_")),
                "SQ_INSTS_SALU": sum(
                    count for name, count in stats.opcodes.items() if tokens_of([(0, name)], "gfx1100") == ("SALU",)
                ),
            }
            same = sum(kernel.counters.get(name) == value for name, value in counted.items())
            tokens, branches = (
                sum(len(wave.tokens) for wave in equal),
                sum(token.endswith("TAKEN") for wave in equal for token in wave.tokens),
            )
            row = (len(kernel.traced), len(equal), tokens, branches, kernel.waves, stats.waves, len(counted), same)
            rows.append((kernel.capture, kernel.name, *row))
            sums.update(dict(zip(range(len(row)), row, strict=True)))
            sums["control"] += sum(tuple(wave.tokens) in without for wave in kernel.traced)
    columns = ("traced", "equal", "instructions", "branches", "waves", "emulated", "counters", "equal counters")
    rows.append(("all", "", *(sums[number] for number in range(len(columns)))))
    print(Table("thread traces of GPUs", ("capture", "kernel", *columns), rows).text())
    print(f"with one instruction taken out: {sums['control']} of {sums[0]} waves equal")
    right = sums[0] == sums[1] > 0 and sums[4] == sums[5] and sums[6] == sums[7] and not sums["unknown kernels"]
    return 0 if right and not sums["control"] else 1


if __name__ == "__main__":
    sys.exit(main())
