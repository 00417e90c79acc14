"""Programs by others whose bugs their authors name, and what `luthier sanitize` finds in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NONE = frozenset[str]()
RACE, READ, LEAK, ERROR = "race", "uninitialised-read", "leak", "call-error"


@dataclass(frozen=True)
class Labelled:
    """A program."""

    label: str
    """The kind of finding that its author's label asks for; empty: the program is right."""
    found: frozenset[str]
    """All kinds that are found."""
    why: str = ""
    """Why the label's is not found, or what is found besides."""

    @property
    def misses(self) -> bool:
        """Return whether the label's is not found."""
        return bool(self.label) and self.label not in self.found


@dataclass(frozen=True)
class Suite:
    """Programs of one repository."""

    repository: str
    folder: str
    """Of the sources in a checkout."""
    checks: str
    programs: Mapping[str, Labelled]
    """By the source's name."""
    not_run: Mapping[str, str]
    """The others, and why."""
    smaller: Mapping[str, str] = field(default_factory=dict)
    """Regular expressions of sizes and words of CUDA's, and what stands for them here."""
    target: str = "gfx90a"

    def ported(self, text: str) -> str:
        """Return a program's text for HIP."""
        for pattern, replacement in self.smaller.items():
            text = re.sub(pattern, replacement, text)
        text = re.sub(r"\bcudaError\b", "hipError_t", text)
        text = re.sub(r"\bcudaMallocHost\(", "hipMallocHost((void **)", text)
        return re.sub(r"\bcuda([A-Z]\w*)", r"hip\1", text)

    def row(self) -> tuple[int, int, int, int, int]:
        """Return how many have a bug by their label, are found, are missed, have no bug, and are reported falsely."""
        bugs = [one for one in self.programs.values() if one.label]
        right = [one for one in self.programs.values() if not one.label]
        missed = sum(one.misses for one in bugs)
        return len(bugs), len(bugs) - missed, missed, len(right), sum(bool(one.found) and not one.why for one in right)


def _same(label: str, kinds: str, why: str, *names: str) -> Iterator[tuple[str, Labelled]]:
    """Yield several programs, with kinds that commas separate."""
    for name in names:
        yield name, Labelled(label, frozenset(filter(None, kinds.split(","))), why)


_RESULT = "besides: no program of the suite writes to the vector of results before it adds to it"
_EXIT = "besides: the program ends at the error, and gives nothing back"
_HOST = "not found: the host computes with numbers of its own that it has not copied"
DRACC = Suite(
    "RWTH-HPC/DRACC",
    "CUDA/src",
    "memory,leak,race,init,barrier,early-exit,host",
    dict(
        [
            *_same(
                RACE,
                RACE,
                "",
                "001_Counter_no_lock_yes",
                "002_Counter_no_lock_Inter_yes",
                "003_Counter_no_lock_Intra_yes",
                "004_wrong_order_yes",
                "005_wrong_order_Inter_yes",
                "006_wrong_order_Intra_yes",
                "025_MxV_Kernel_missing_wait_yes",
            ),
            *_same(
                RACE,
                f"{RACE},copy-direction",
                "besides: the copy that races says the wrong direction",
                "026_MxV_Kernel_wrong_update_yes",
            ),
            *_same(ERROR, f"{ERROR},{LEAK}", _EXIT, "008_MxV_Missing_Alloc_yes"),
            *_same(
                "copy-out-of-bounds",
                f"copy-out-of-bounds,{ERROR},{LEAK}",
                _EXIT,
                "009_MxV_partially_Missing_Alloc_yes",
                "015_MxV_out_of_bounds_copyin_yes",
            ),
            *_same(
                "copy-out-of-bounds",
                f"copy-out-of-bounds,{ERROR},{LEAK},{READ}",
                f"{_EXIT}; {_RESULT.partition(' ')[2]}",
                "016_MxV_out_of_bounds_copyout_yes",
            ),
            *_same(READ, READ, "", "010_MxV_Missing_Data_yes", "011_MxV_partially_Missing_Data_yes"),
            *_same("stale", READ, _HOST, "012_MxV_outdated_Data_yes", "013_MxV_partially_outdated_Data_yes"),
            *_same(LEAK, f"{LEAK},{READ}", _RESULT, "014_MxV_Missing_Free_other"),
            *_same(
                "copy-direction",
                f"copy-direction,{READ}",
                _RESULT,
                "017_MxV_pointer_flip_yes",
                "018_MxV_pointer_flip_copyout_yes",
            ),
            *_same(
                "large-grid",
                "copy-direction",
                "not found: AMD's GPUs take grids of this size; besides: the last copy says the wrong direction",
                "020_Large_Grid_Dim_yes",
            ),
            *_same(
                "unseen-error",
                LEAK,
                "not found: the program asks for the launch's error, prints it, and ends without giving back",
                "021_Large_Block_Dim_yes",
            ),
            *_same(RACE, RACE, "", "022_atomic_interference_yes", "023_atomic_interference_Intra_yes"),
            *_same(
                "host-race", "", "not found: what the host itself reads is not seen", "024_MxV_copy_missing_wait_yes"
            ),
            *_same("", "", "", "027_Counter_working_no", "028_Counter_working_Intra_no"),
            *_same("", READ, _RESULT, "029_MxV_working_no"),
        ]
    ),
    {
        "007_buffer_overflow_recursion_yes": "clang makes an endless loop of the recursion",
        "019_Large_Data_Alloc_yes": "the host writes to 63 GB",
    },
    # Matrices of thousands of columns have gigabytes.
    {r"#define B 100\b": "#define B 4", r"#define T (512|256)\b": "#define T 128", r"#define N \d+": "#define N 20"},
)
_WAVES = "not found: GFX12's fences of both scopes are the same when they release, and nothing old is in a cache"
RELEASE = "missing-release"
SCOR = Suite(
    "csl-iisc/ScoR",
    "microbenchmarks/src",
    "memory,race,barrier,early-exit",
    dict(
        [
            *_same(
                "",
                "",
                "",
                "norace_interblock_atom",
                "norace_interblock_fence_raw",
                "norace_interblock_lock_waw",
                "norace_interwarp-block_fence-atom_hrd-indirect",
                "norace_interwarp-block_fence_hrf-indirect",
                "norace_interwarp_blkatom",
                "norace_interwarp_blkfence_raw",
                "norace_interwarp_blklock_waw",
                "norace_interwarp_dev-blkatom",
                "norace_interwarp_dev-blklock_waw",
                "norace_interwarp_fence_raw",
                "norace_intrawarp_none-blkatom",
                "norace_intrawarp_none-blklock-no-tf_waw",
                "norace_intrawarp_none-blklock_waw",
            ),
            *_same(
                RACE,
                RACE,
                "",
                "race_interblock_blkatom",
                "race_interblock_blklock_waw",
                "race_interblock_fence_rtraw",
                "race_interblock_none-atom_waw",
                "race_interblock_none-lock_rtraw",
                "race_interblock_none-lock_waw",
                "race_interwarp_none-atom_waw",
                "race_interwarp_none-blkatom_waw",
                "race_interwarp_none-blklock_waw",
                "race_interwarp_none-lock_waw",
            ),
            *_same(RACE, "", _WAVES, "race_interblock_blkfence_raw"),
            *_same(
                RELEASE,
                RELEASE,
                "",
                "race_interblock_lock-no-tf_waw",
                "race_interwarp_blklock-no-tf_waw",
                "race_interwarp_dev-blklock-no-tf_waw",
            ),
            *_same(
                "missing-acquire",
                "",
                "not found: the wave without the fence takes the lock first, when there is nothing that it may miss",
                "race_interblock_lock-blkfence_waw",
                "race_interblock_lock-no-stf_waw",
                "race_interwarp_blklock-no-stf_waw",
                "race_interwarp_dev-blklock-no-stf_waw",
            ),
        ]
    ),
    {},
    # HIP has no order of volatile accesses, and the host does not wait for kernels that it launched.
    {r"\bvolatile ": "", r"= cudaGetLastError": "= cudaDeviceSynchronize"},
    "gfx1201",
)
SAMPLES = Suite(
    "NVIDIA/compute-sanitizer-samples",
    "",
    "memory,leak,race,init,barrier,early-exit,host",
    dict(
        [
            *_same(READ, READ, "", "Initcheck/memset_error"),
            *_same(
                "invalid-address",
                "invalid-address,out-of-bounds",
                "without the leak: the fault ends the process; AMD's GPUs allow the access that is not aligned, but "
                "its last byte is after the variable",
                "Memcheck/memcheck_demo",
            ),
            *_same(
                RACE, f"{RACE},{READ}", "besides: what is read too early is not written yet", "Racecheck/block_error"
            ),
            *_same(
                RACE, "", "not found: the lanes are of one wave of 64, which goes on in step", "Racecheck/warp_error"
            ),
            *_same(
                "missed-barrier",
                f"missed-barrier,{READ}",
                "besides: nothing writes to the array that is summed",
                "Synccheck/divergent_threads",
            ),
            *_same(
                ERROR,
                f"{ERROR},{LEAK}",
                "besides: what could be had is never given back",
                "Suppressions/suppressions_demo",
            ),
            *_same(
                READ,
                LEAK,
                "not found: of the dword that is read the last byte alone is not written",
                "Suppressions/suppressions_initcheck_demo",
            ),
        ]
    ),
    {"Synccheck/illegal_syncwarp": "AMD's waves have no masks that their lanes wait by"},
)
SUITES = {"DRACC": DRACC, "ScoR": SCOR, "compute-sanitizer-samples": SAMPLES}
"""By the name of the checkout's folder."""
