"""Hold the emulated device's instruction streams against thread traces of GPUs.

Each traced wave of a GPU is compared with the streams that the emulated device executes of the same object: number,
order and the hardware's class of instructions, and whether each branch was taken. Waves and counters of VALU and SALU
instructions are compared, too. As a control one instruction is taken out of each stream: no traced wave may still be
equal. tinygrad, which knows nothing of Luthier, decodes the tokens as well; they are compared one by one.

Use: python benchmarks/hardware/thread_traces.py CHECKOUT    (of tinygrad/tinygrad, MIT licence)
Exit code 1: something differs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter, defaultdict
from itertools import zip_longest
from pathlib import Path

import luthier
import numpy as np
from luthier import Table
from luthier.report.sqtt import WORDS, code_kinds
from luthier.report.sqtt_writer import instruction_code, layout_of
from luthier.support.processes import run

sys.path.insert(0, os.fspath(Path(__file__).parent))
from captures import CapturedKernel, captured_kernels, loadable, theirs

LAUNCHES = {
    "E": ((1,), 1, 0),
    "E_3": ((1,), 3, 3),
    "E_32_4": ((1,), 32, 1),
    "r_32_32_16_2": ((32, 32), 16, 3),
    "custom_lds_sync": ((1,), 128, 1),
    "custom_handwritten": ((1,), 128, 1),
}
"""By kernel: grid in work-groups, work-items of a work-group, pointer arguments."""


def codes_of(stream: list[tuple[int, str]], target: str) -> tuple[int, ...]:
    """Return the hardware's classes of the instructions that leave tokens in a thread trace.

    Args:
        stream: addresses and texts in the order of execution.
    """
    layout = layout_of(target)
    codes = []
    following = [address for address, _ in stream[1:]] + [stream[-1][0] + 4]
    for (address, text), after in zip(stream, following, strict=True):
        size = after - address
        code = instruction_code(text, layout, size if size in (4, 8) else 4, taken=size != 4)
        if code is not None:
            codes.append(code)
    return tuple(codes)


def is_salu(mnemonic: str, layout: int) -> bool:
    """Return whether SQ_INSTS_SALU counts an instruction."""
    code = instruction_code(mnemonic, layout)
    return code is not None and code_kinds(layout)[code] == "salu"


def agreement(kernel: CapturedKernel) -> Counter[str]:
    """Count tokens, and those that tinygrad decodes alike.

    tinygrad leaves out tokens that begin in a trace's last 8 bytes. On GFX9 it reads the time of MISC tokens only, and
    takes a time stamp where it is. AMD's register headers give all tokens a time, and AMD's decoder takes a stamp at
    the reset of the time before it. So times are also computed by tinygrad's rule. On GFX11 and GFX12 tinygrad gives
    the token of a new program counter another length, or misreads what follows it: then a trace is compared to there.
    """
    counts: Counter[str] = Counter(traces=len(kernel.traces))
    for trace in kernel.traces:
        misc, begin, jumped = 0, None, False
        for token, other in zip_longest(trace.tokens(), theirs(trace)):
            counts["tokens"] += token is not None or not jumped
            if token is not None and trace.layout != WORDS:
                jumped = jumped or token.kind.name == "NEW_PC"
            if jumped:
                counts["after a jump"] += token is not None
                continue
            if token is None or other is None:
                counts["last 8 bytes"] += token is not None and token.at + 64 > 8 * len(trace.data)
                continue
            name, value, time = other
            counts["equal"] += (token.kind.name, token.value) == (name, value)
            counts["equal times"] += token.time == time
            if name == "MISC":
                misc += 4 * (token.value >> 4 & 0xFF)
            elif name == "TIMESTAMP" and not token.value >> 4 & 0xFFF:
                begin, misc = (
                    (token["cycles"] - misc, misc) if begin is None else (begin, (token["cycles"] - begin) // 4 * 4 - 4)
                )
            counts["by its rule"] += (misc if trace.layout == WORDS else token.time) == time
    return counts


def emulated(kernel: CapturedKernel, folder: Path) -> tuple[luthier.emulator.LaunchStats, set[tuple[int, ...]]]:
    """Return counts, and the different streams of classes of all waves, of a launch on the emulated device."""
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
    return stats, {codes_of(stream, kernel.target) for stream in streams.values()}


def main() -> int:
    """Print a row for each kernel of each capture, and a sum."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    rows, sums, decoded = [], Counter(), defaultdict[str, Counter[str]](Counter)
    with tempfile.TemporaryDirectory() as folder:
        for kernel in captured_kernels(Path(sys.argv[1])):
            if kernel.name not in LAUNCHES:
                print(f"{kernel.capture}: no launch is known of {kernel.name}", file=sys.stderr)
                sums["unknown kernels"] += 1
                continue
            layout = layout_of(kernel.target)
            stats, streams = emulated(kernel, Path(folder))
            traced = [(wave, tuple(step.code for step in wave.steps)) for wave in kernel.traced]
            equal = [(wave, codes) for wave, codes in traced if wave.whole and codes in streams]
            without = {stream[:at] + stream[at + 1 :] for stream in streams for at in range(len(stream))}
            counted = {
                "SQ_INSTS_VALU": sum(count for name, count in stats.opcodes.items() if name.startswith("v_")),
                "SQ_INSTS_SALU": sum(count for name, count in stats.opcodes.items() if is_salu(name, layout)),
            }
            same = sum(kernel.counters.get(name) == value for name, value in counted.items())
            ends = layout != WORDS  # there s_endpgm leaves a token of its own
            instructions = sum(len(codes) + ends for _, codes in equal)
            branches = sum(step.kind in ("taken", "not taken") for wave, _ in equal for step in wave.steps)
            started = sum(
                token.kind.name.startswith("WAVE_START") for trace in kernel.traces for token in trace.tokens()
            )
            row = (len(kernel.traced), len(equal), instructions, branches, started, stats.waves, len(counted), same)
            rows.append((kernel.capture, kernel.name, *row))
            sums.update(dict(zip(range(len(row)), row, strict=True)))
            sums["control"] += sum(codes in without for _, codes in traced)
            decoded[kernel.capture.partition("/")[0]] += agreement(kernel)
    columns = ("traced", "equal", "instructions", "branches", "waves", "emulated", "counters", "equal counters")
    rows.append(("all", "", *(sums[number] for number in range(len(columns)))))
    print(Table("thread traces of GPUs", ("capture", "kernel", *columns), rows).text())
    print(f"with one instruction taken out: {sums['control']} of {sums[0]} waves equal")
    columns = ("traces", "tokens", "equal", "last 8 bytes", "after a jump", "equal times", "by its rule")
    alike = [(folder, *(counts[column] for column in columns)) for folder, counts in decoded.items()]
    print(Table("tokens as tinygrad decodes them", ("captures", *columns), alike).text())
    right = sums[0] == sums[1] > 0 and sums[4] == sums[5] and sums[6] == sums[7] and not sums["unknown kernels"]
    right &= all(tokens == equal + last + jump and rule == equal for *_, tokens, equal, last, jump, _, rule in alike)
    return 0 if right and not sums["control"] else 1


if __name__ == "__main__":
    sys.exit(main())
