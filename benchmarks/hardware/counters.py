"""Hold the emulated device's counts against every counter of rocprof-compute's published vector copy.

Each pmc_perf.csv has launches of a copy of 1,048,576 doubles in work-groups of 256 on an MI100, MI200, MI300A, MI300X
or MI350. The kernel of tests/hardware is compiled for that target, and launched on the emulated device with fewer
elements: all waves execute the same.

Use: python benchmarks/hardware/counters.py CHECKOUT    (of ROCm/rocm-systems, MIT licence)
Exit code 1: a value differs that is not explained.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import luthier
import numpy as np
from luthier import Table
from luthier.isa.sq_counters import sq_counters_of

from luthier_build.compile import compile_application

TARGETS = {"MI100": "gfx908", "MI200": "gfx90a", "MI300A_A1": "gfx942", "MI300X_A1": "gfx942", "MI350": "gfx950"}
KERNELS = Path(__file__).parents[2] / "tests/hardware/kernels.hip"
WAVES, ELEMENTS = 1 << 14, 1 << 12
EXPLAINED = {
    ("MI100", "SQ_THREAD_CYCLES_VALU"): "it counts cycles: v_lshlrev_b64 takes two there",
}


def expected(target: str, folder: Path) -> dict[str, float]:
    """Return the counters of a launch of 1,048,576 elements."""
    path = compile_application(KERNELS, target, folder / f"{target}.hsaco", flags=["-O3"])
    source = np.arange(ELEMENTS, dtype=float)
    kernel = luthier.open_device(f"emu:{target}").load(path).kernel("copy")
    stats = kernel.launch(source, np.zeros(1), np.zeros(ELEMENTS), ELEMENTS, 1, grid=ELEMENTS // 256, block=256)
    counters: Counter[str] = Counter()
    for mnemonic, count in stats.opcodes.items():
        counters.update(dict.fromkeys(sq_counters_of(mnemonic), count))
        if mnemonic.startswith("v_"):
            counters["SQ_THREAD_CYCLES_VALU"] += stats.opcode_lanes[mnemonic]
        size = {"s_load_dword": 1, "s_load_dwordx2": 2, "s_load_dwordx4": 4}.get(mnemonic)
        if size:
            counters[f"SQC_DCACHE_REQ_READ_{size}"] += count
    scale = WAVES / stats.waves
    read, written = counters["SQ_INSTS_VMEM_RD"], counters["SQ_INSTS_VMEM_WR"]
    more = {
        **{f"SQC_DCACHE_REQ_READ_{size}": 0 for size in (1, 2, 4)},
        **dict.fromkeys(("SQ_INSTS_LDS", "SQ_INSTS_GDS", "SQ_INSTS_EXP_GDS", "SQ_INSTS_MFMA", "SQ_INSTS_VSKIPPED"), 0),
        **dict.fromkeys(("SQ_INSTS_VALU_CVT", "SQ_INSTS_VALU_ADD_F64", "SQ_INSTS_VALU_INT64"), 0),
        **counters,
        "SQ_WAVES": stats.waves,
        "SPI_CSN_WAVE": stats.waves,
        "SQ_ITEMS": 64 * stats.waves,
        "SPI_CSN_NUM_THREADGROUPS": stats.workgroups,
        "SQ_INSTS_FLAT": read + written,
        "TA_TOTAL_WAVEFRONTS_sum": read + written,
        "TA_FLAT_READ_WAVEFRONTS_sum": read,
        "TA_FLAT_WRITE_WAVEFRONTS_sum": written,
        "TCP_TOTAL_READ_sum": 64 * read,
        "TCP_TOTAL_WRITE_sum": 64 * written,
    }
    return {name: scale * value for name, value in more.items()}


def measured(checkout: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the GPU and the counters of each launch."""
    for path in sorted((checkout / "projects/rocprofiler-compute/tests/workloads").glob("*/*/pmc_perf.csv")):
        if path.parent.name in TARGETS:
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    yield path.parent.name, row


def main() -> int:
    """Print a row for each GPU, and for each value that differs."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    differing: Counter[tuple[str, str, float, float]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        known = {target: expected(target, Path(folder)) for target in sorted(set(TARGETS.values()))}
    for gpu, row in measured(Path(sys.argv[1])):
        for name, value in known[TARGETS[gpu]].items():
            if row.get(name):
                is_equal = float(row[name]) == value
                sums[gpu].update({"values": 1, "equal": is_equal, name: 0})
                if not is_equal:
                    differing[gpu, name, float(row[name]) / WAVES, value / WAVES] += 1
        sums[gpu]["launches"] += 1
    rows = [(gpu, n["launches"], len(n) - 3, n["values"], n["equal"]) for gpu, n in sums.items()]
    rows.append(("all", *(sum(row[at] for row in rows) if at != 2 else None for at in range(1, 5))))
    print(Table("counters of GPUs", ("GPU", "launches", "counters", "values", "equal"), rows).text())
    for (gpu, name, theirs, ours), times in differing.items():
        reason = EXPLAINED.get((gpu, name), "not explained")
        print(f"{gpu}: {name} is {theirs:g} a wave, counted {ours:g}; {times} times: {reason}")
    return int(not rows[-1][3] or any((gpu, name) not in EXPLAINED for gpu, name, *_ in differing))


if __name__ == "__main__":
    sys.exit(main())
