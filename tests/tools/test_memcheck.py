"""Accesses outside of allocations, of freed memory and outside of LDS by hooks, against a map of every byte."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier import ApiEvent, patch_object, reported
from luthier.devices.in_process import HereRun
from luthier.module.embedded import plain_name

from .conftest import ALL, TARGETS, rows

PAGE = 4096
BLOCK, GROUPS = 128, 3
SOURCE = """
#include <hip/hip_runtime.h>
typedef unsigned Two __attribute__((ext_vector_type(2), aligned(4)));
typedef unsigned Three __attribute__((ext_vector_type(3), aligned(4)));
typedef unsigned Four __attribute__((ext_vector_type(4), aligned(4)));
extern "C" __global__ void touch(char *base, const int *offsets, unsigned *out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  auto *at = (TYPE *)(base + offsets[i]);
  ACCESS
}
extern "C" __global__ void local(char *base, const int *offsets, unsigned *out) {
  __shared__ unsigned words[200];
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  auto *at = (TYPE *)((char *)words + offsets[i]);
  words[threadIdx.x] = 5;
  __syncthreads();
  ACCESS
  __syncthreads();
  out[i] += words[threadIdx.x];
}
"""
ACCESSES = {
    "byte": ("unsigned char", 1, "out[i] = *at;"),
    "half": ("unsigned short", 2, "*at = 7;"),
    "word": ("unsigned", 4, "out[i] = *at;"),
    "atomic": ("unsigned", 4, "atomicAdd(at, 1u);"),
    "two": ("Two", 8, "*at = Two{7, 7};"),
    "three": ("Three", 12, "*at = Three{7, 7, 7};"),
    "four": ("Four", 16, "Four v = *at; out[i] = v.x + v.y + v.z + v.w;"),
}
"""Name -> type, bytes, and what a lane does."""
WORDS = {"byte": "read", "half": "write", "word": "read", "atomic": "atomic", "two": "write", "three": "write"}
Key = tuple[str, str, int]
"""Kind of a finding, side, and bytes of the allocation."""


@dataclass
class Layout:
    """Known allocations in a buffer: (offset, size, reserved, whether it was freed)."""

    parts: list[tuple[int, int, int, bool]]
    size: int

    @classmethod
    def random(cls, seed: int) -> Layout:
        """Return some; no two have the same size."""
        choose, parts, at = random.Random(seed), list[tuple[int, int, int, bool]](), PAGE
        for number in range(choose.randint(2, 6)):
            size = choose.choice((16, 17, 100, 1000, 4000, 4096, 5000)) + 10000 * number
            reserved = -(-(size + 256) // PAGE) * PAGE if choose.random() < 0.7 else size + 256
            parts.append((at, size, reserved, choose.random() < 0.3))
            at += -(-reserved // 256) * 256 + choose.choice((0, 0, PAGE))
        return cls(parts, at + PAGE)

    def events(self, base: int) -> list[ApiEvent]:
        """Return the events of a program with these allocations."""
        events = []
        for offset, size, reserved, freed in random.Random(0).sample(self.parts, len(self.parts)):
            arguments = {"address": base + offset, "size": size, "reserved": reserved}
            events.append(ApiEvent("allocated", False, 1, 1, 1, 0, arguments))
            if freed:
                events.append(ApiEvent("freed", False, 1, 1, 1, 0, {"address": base + offset}))
        return events

    def bad(self, first: int, size: int) -> Key | None:
        """Return what an access is called; None if it is good."""
        for byte in (first, first + size - 1):
            for number, (offset, extent, reserved, freed) in enumerate(self.parts):
                following = self.parts[number + 1] if number + 1 < len(self.parts) else (1 << 40, 0, 0, False)
                if freed and offset <= byte < offset + extent:
                    return "use-after-free", self.side(first, number), extent
                if offset + extent <= byte < min(offset + reserved, following[0]):
                    near = number + (following[0] - byte <= byte - offset - extent)
                    return "out-of-bounds", self.side(first, near), self.parts[near][1]
        return None

    def side(self, first: int, number: int) -> str:
        """Return where an access begins, seen from an allocation."""
        offset, size, *_ = self.parts[number]
        return "before" if first < offset else "inside" if first < offset + size else "after"


def variables(module: Any, patched: Any) -> dict[str, Any]:
    return {plain_name(one.name): one for one in HereRun(module, patched).variables()}


def watched(kernel: Any, tool: Any, events: list[ApiEvent], lds: int = 0) -> dict[str, Any]:
    """Return what the tool reports of one launch, by title; what the kernel writes is the same as without it."""
    patched = patch_object(kernel.object, tool.instrument, [kernel.kernel], strict=True)
    memory = sys.modules["luthier_memcheck"]
    for event in events:
        tool.at_memory_event(event)
    _, before = kernel.launch(kernel.object.data)
    for value, place in zip(kernel.arguments, kernel.placed, strict=True):
        if isinstance(value, np.ndarray):
            place.write(value)
    module = kernel.device.load(patched.data)
    known = variables(module, patched)
    assert tool.tell(tool.allocations[1], known)
    groups, block = (one if isinstance(one, tuple) else (one, 1, 1) for one in (kernel.grid, kernel.block))
    items = [many * each for many, each in zip(groups, block, strict=True)]
    name = kernel.object.name, kernel.kernel
    held = tool.held(tool.allocations[1], name, kernarg_of(kernel), lds)
    memory._write(known, {"launch": memory.launch_record(7, items, block, lds), "held": held})
    module.kernel(kernel.kernel).launch(*kernel.placed, grid=kernel.grid, block=kernel.block)
    assert [one.read() for one in kernel.placed if hasattr(one, "read")] == before
    return {table.title.partition(":")[0]: rows(table) for table in reported(tool, module, patched)}


def kernarg_of(kernel: Any) -> bytes:
    """Return the contents of a launch's arguments."""
    contents = bytearray(512)
    explicit = [one for one in kernel.object.kernels[kernel.kernel].arguments if not one.hidden]
    for argument, placed in zip(explicit, kernel.placed, strict=True):
        value = placed.address if hasattr(placed, "address") else int(placed)
        contents[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
    return bytes(contents)


def made(bench: Any, kernel: str, target: str, access: str, memory: int, offsets: Any) -> Any:
    type, _, text = ACCESSES[access]
    source = SOURCE.replace("TYPE", type).replace("ACCESS", text)
    out = np.zeros(BLOCK * GROUPS, np.uint32)
    return bench(source, kernel, target, np.zeros(memory, np.uint8), offsets, out, grid=GROUPS, block=BLOCK)


@pytest.mark.rows(2, "target", "access")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_byte(bench: Any, shipped: Any, target: str, access: str, seed: int) -> None:
    """Lanes at random places near the ends of allocations: each finding, and how many lanes, is as the bytes say."""
    layout, (_, size, _), choose = Layout.random(seed), ACCESSES[access], random.Random(seed)
    step = min(size, 4)
    edges = [
        edge for offset, extent, reserved, _ in layout.parts for edge in (offset, offset + extent, offset + reserved)
    ]
    near = [choose.choice(edges) + choose.randint(-40, 40) for _ in range(BLOCK * GROUPS)]
    offsets = np.array([one // step * step for one in near], np.int32)
    kernel = made(bench, "touch", target, access, layout.size, offsets)
    tool = shipped("memcheck", top=0)
    base = kernel.placed[0].address
    tables = watched(kernel, tool, layout.events(base))
    bad = [layout.bad(offset, size) for offset in offsets.tolist()]
    counts: Counter[str] = Counter()
    for row in tables["bad accesses"]:
        counts[row["kind"]] += row["lanes"]
        assert (row["bytes"], row["access"], row["launch"]) == (size, WORDS.get(access, "read"), 7)
        item = row["work-group"] * BLOCK + row["wave"] * ALL[target].wave_sizes[0] + row["lane"]
        assert int(row["at"], 16) == base + int(offsets[item])
        assert bad[item] == (row["kind"], row["side"], row["of bytes"])
    assert counts == Counter(one[0] for one in bad if one is not None)
    assert "not measured" not in tables


@pytest.mark.rows(1)
@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("target", TARGETS)
def test_the_last_bytes(bench: Any, shipped: Any, target: str, access: str) -> None:
    """The allocation's bounds are in the kernel's registers, because an argument points to it."""
    size, step = ACCESSES[access][1], min(ACCESSES[access][1], 4)
    extent = 999 + size  # an access at 1000 is one byte too far, and no lane goes further
    near = [1000 - place for place in range(48)] * 8
    offsets = np.array([one // step * step for one in near], np.int32)
    kernel = made(bench, "touch", target, access, 4096, offsets)
    tool = shipped("memcheck", top=0)
    tables = watched(kernel, tool, Layout([(0, extent, 2048, False)], 4096).events(kernel.placed[0].address))
    (held,) = tool._held.values()
    assert any(one.claim.argument == 0 for one in held)
    assert sum(row["lanes"] for row in tables["bad accesses"]) == (offsets + size > extent).sum()


@pytest.mark.rows(1)
@pytest.mark.parametrize("access", ["byte", "half", "word", "atomic"])
@pytest.mark.parametrize("target", TARGETS)
def test_lds(bench: Any, shipped: Any, target: str, access: str) -> None:
    """LDS ends at the work-group's last byte, and begins at 0."""
    size, lds, choose = ACCESSES[access][1], 800, random.Random(1)
    near = [choose.choice((lds, 0, 400)) + choose.randint(-40, 40) for _ in range(BLOCK * GROUPS)]
    offsets = np.array([one // min(size, 4) * min(size, 4) for one in near], np.int32)
    kernel = made(bench, "local", target, access, 16, offsets)
    tables = watched(kernel, shipped("memcheck"), [], lds)
    lanes = {"before": int((offsets < 0).sum()), "after": int((offsets + size > lds).sum())}
    counts: Counter[str] = Counter()
    for row in tables["bad accesses"]:
        counts[row["side"]] += row["lanes"]
        assert (row["kind"], row["allocation"], row["of bytes"], row["bytes"]) == ("out-of-bounds", "LDS", lds, size)
    assert counts == lanes


def test_without_lds(bench: Any, shipped: Any) -> None:
    """On request accesses of LDS are left alone."""
    kernel = made(bench, "local", "gfx90a", "word", 16, np.zeros(BLOCK * GROUPS, np.int32))
    spaces = []
    for lds in (True, False):
        tool = shipped("memcheck", lds=lds)
        patch_object(kernel.object, tool.instrument, ["local"], strict=True)
        spaces.append({site.instruction.memory.space for site in tool.checked.sites})
    assert spaces == [{"global", "lds"}, {"global"}]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_who_it_was(bench: Any, shipped: Any, target: str) -> None:
    """Work-groups, waves and lanes are counted in three dimensions."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void volume(unsigned *out, unsigned which) {
      const unsigned group = blockIdx.x + 2 * (blockIdx.y + 3 * blockIdx.z);
      const unsigned item = threadIdx.x + 8 * (threadIdx.y + 4 * threadIdx.z), i = group * 128 + item;
      out[i == which ? i + 10000 : i] = 1;
    }
    """
    layout, width = Layout([(0, 10000 * 4, 11000 * 4 + 4 * 1536, False)], 16000 * 4), ALL[target].wave_sizes[0]
    for which in (0, 1535, 7 * 128 + 70):
        out = np.zeros(16000, np.uint32)
        kernel = bench(source, "volume", target, out, which, grid=(2, 3, 2), block=(8, 4, 4))
        (row,) = watched(kernel, shipped("memcheck"), layout.events(kernel.placed[0].address))["bad accesses"]
        assert (row["work-group"], row["wave"] * width + row["lane"]) == divmod(which, 128)
        assert (row["distance"], row["lanes"]) == (4 * which, 1)


def test_a_work_group_that_hooks_cannot_know(bench: Any, shipped: Any) -> None:
    """On GFX12, kernels that request only the second id have no third one: nothing is reported then."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void plane(unsigned *out, int at) { out[at + blockIdx.y] = 1; }
    """
    layout = Layout([(0, 4096, 8192, False)], 8192)
    for grid, groups in (((1, 2, 2), {None}), ((1, 2, 1), {0, 1})):
        kernel = bench(source, "plane", "gfx1201", np.zeros(2048, np.uint32), 1024, grid=grid, block=(32, 1, 1))
        (row,) = watched(kernel, shipped("memcheck"), layout.events(kernel.placed[0].address))["bad accesses"]
        assert row["work-group"] in groups


def test_both_sides_of_an_allocation(shipped: Any) -> None:
    """Accesses before and after it have different names, though neither belongs to another allocation."""
    tool = shipped("memcheck")
    for event in Layout([(0, 100, 1000, False), (1000, 100, 1000, False)], 0).events(PAGE):
        tool.at_memory_event(event)
    names = [stretch.name for stretch in tool.allocations[1].stretches()]
    of_second = [one for one in names if one is not None and one.allocation.address == PAGE + 1000]
    assert len(set(of_second)) == len(of_second) == 2


@pytest.mark.parametrize("seed", range(20))
def test_addresses_without_memory(shipped: Any, seed: int) -> None:
    """An access to unmapped memory is named after the nearest allocation, whatever is mapped around it."""
    choose, layout, tool = random.Random(seed), Layout.random(seed), shipped("memcheck")
    for event in layout.events(0)[: choose.choice((0, 100))]:
        tool.at_memory_event(event)
    allocations = sys.modules["luthier_memcheck.allocations"]
    edges = sorted(choose.sample(range(0, layout.size + 50 * PAGE, PAGE), 2 * choose.randint(1, 5)))
    ranges = list(zip(edges[::2], edges[1::2], strict=True))
    text = "\n".join(f"{begin:x}-{end:x} rw-p 00000000 00:00 0 [x]" for begin, end in ranges)
    stretches = list(tool.allocations[1].stretches(allocations.mapped(text.encode())))
    assert [one.end for one in stretches[:-1]] == [one.begin for one in stretches[1:]]
    assert (stretches[0].begin, stretches[-1].end) == (0, 1 << 64)
    parts = layout.parts if tool.allocations[1].made else []
    for stretch in stretches:
        for address in (stretch.begin, stretch.end - 1):
            kind, near = meant(parts, ranges, address)
            assert (kind is None) == (stretch.name is None), hex(address)
            if stretch.name is not None:
                assert (stretch.name.kind, stretch.name.allocation and stretch.name.allocation.size) == (kind, near)


def meant(
    parts: list[tuple[int, int, int, bool]], ranges: list[tuple[int, int]], address: int
) -> tuple[str | None, int | None]:
    """Return what an access of a byte is called, and the size of the allocation that is nearest; None: it is good."""
    for number, (at, size, reserved, freed) in enumerate(parts):
        following = parts[number + 1][0] if number + 1 < len(parts) else 1 << 64
        if at <= address < at + size:
            return ("use-after-free", size) if freed else (None, None)
        if at + size <= address < min(at + reserved, following):
            return "out-of-bounds", nearer(parts, address)
    if address >= 1 << 47 or any(begin <= address < end for begin, end in ranges):
        return None, None
    return "invalid-address", nearer(parts, address) if parts else None


def nearer(parts: list[tuple[int, int, int, bool]], address: int) -> int:
    """Return the size of the allocation that an address outside of all is nearest to, of two the one behind it."""
    before = [(address - at - size, size) for at, size, *_ in parts if at <= address]
    behind = [(at - address, size) for at, size, *_ in parts if at > address]
    if not before or (behind and min(behind)[0] <= min(before)[0]):
        return min(behind)[1]
    return min(before)[1]


def test_what_is_good(bench: Any, shipped: Any) -> None:
    """There are no findings inside allocations, or where nothing is known."""
    layout = Layout([(PAGE, 8000, 8192, False), (4 * PAGE, 100, 400, False)], 6 * PAGE)
    offsets = np.arange(BLOCK * GROUPS, dtype=np.int32) * 4 + PAGE
    offsets[:20] = np.arange(20) * 4 + 4 * PAGE + 20
    offsets[20] = 4 * PAGE + 400
    kernel = made(bench, "touch", "gfx90a", "word", layout.size, offsets)
    tables = watched(kernel, shipped("memcheck"), layout.events(kernel.placed[0].address))
    assert tables["bad accesses"] == []


def test_launches_that_nobody_tells_of(bench: Any, shipped: Any) -> None:
    """They are not checked, which is reported."""
    offsets = np.zeros(BLOCK * GROUPS, np.int32)
    tables = made(bench, "touch", "gfx90a", "word", 16, offsets).under(shipped("memcheck"))
    (row,) = rows(tables["not checked"])
    assert row["what"].startswith("launches that the tool did not see")


def test_too_many_allocations(shipped: Any) -> None:
    """There is room for a number of ranges; others are not reported."""
    tool = shipped("memcheck")
    memory = sys.modules["luthier_memcheck"]
    for number in range(memory.STRETCHES // 2):
        event = {"address": number * PAGE, "size": 8, "reserved": PAGE}
        tool.at_memory_event(ApiEvent("allocated", False, 1, 1, 1, 0, event))
    assert not tool.tell(tool.allocations[1], {})


def test_what_is_not_checked_is_told(bench: Any, shipped: Any) -> None:
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void buffers(float *out) {
      int rsrc __attribute__((ext_vector_type(4))) = {0, 0, 0, 0};
      float x;
      asm volatile("buffer_load_dword %0, off, %1, 0\\ns_waitcnt vmcnt(0)" : "=v"(x) : "s"(rsrc));
      out[threadIdx.x] = x;
    }
    """
    tables = bench(source, "buffers", "gfx90a", np.zeros(64, np.float32)).under(shipped("memcheck"), strict=False)
    (row,) = (one for one in rows(tables["not checked"]) if "buffers" in one["what"])
    assert row["count"] == 1


CHANGED, INSIDE = "s_add_u32 s0, s0, 8", "s_load_dword s6, s[0:1], 0x0"
WAYS = {
    "straight": ([INSIDE], []),
    "behind a change": ([CHANGED, INSIDE], ["s6"]),
    "before a change": ([INSIDE, CHANGED], []),
    "changed on one way": (["s_cbranch_scc1 there", CHANGED, "there:", INSIDE], ["s6"]),
    "changed on another way": (["s_cbranch_scc1 there", CHANGED, "s_endpgm", "there:", INSIDE], []),
    "changed in a loop": (["there:", INSIDE, CHANGED, "s_cbranch_scc1 there"], ["s6"]),
    "overwritten by itself": (["s_load_dwordx2 s[0:1], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", INSIDE], ["s6"]),
    "of another pointer": (["s_mov_b64 s[2:3], s[0:1]", "s_load_dword s6, s[2:3], 0x0"], ["s6"]),
}
"""Code, and the results of the loads in it that are checked."""


@pytest.mark.rows(5)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_launch_has_is_not_checked(shipped: Any, way: str) -> None:
    """Loads by the pointer that the launch gave need no check where nothing has changed it on any way there."""
    code, checked = WAYS[way]
    tool = shipped("memcheck")
    patch_object(assembled(kernel_text(function("k", [*code, "s_endpgm"]), "gfx90a"), "gfx90a"), tool.instrument)
    assert [site.text.split()[1].rstrip(",") for site in tool.checked.sites] == checked


LOADED = ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "v_lshlrev_b32_e32 v0, 2, v0"]
ACCESS = "global_load_dword v1, v0, s[6:7]"
BASES = {
    "as it was loaded": ([ACCESS], True),
    "changed": (["s_add_u32 s6, s6, 8", ACCESS], False),
    "its upper half changed": (["s_add_u32 s7, s7, 8", ACCESS], False),
    "changed on one way": (["s_cbranch_scc1 there", "s_add_u32 s6, s6, 8", "there:", ACCESS], False),
    "changed on another way": (["s_cbranch_scc1 there", "s_add_u32 s6, s6, 8", "s_endpgm", "there:", ACCESS], True),
    "changed in a loop": (["there:", ACCESS, "s_add_u32 s6, s6, 8", "s_cbranch_scc1 there"], False),
    "loaded by another pointer": (["s_load_dwordx2 s[6:7], s[4:5], 0x0", "s_waitcnt lgkmcnt(0)", ACCESS], False),
    "loaded again": (["s_mov_b32 s6, 0", "s_load_dwordx2 s[6:7], s[0:1], 0x8", "s_waitcnt lgkmcnt(0)", ACCESS], True),
}
"""Code, and whether its base is surely an argument of the kernel."""


@pytest.mark.rows(5)
@pytest.mark.parametrize("way", BASES)
def test_bases_that_are_arguments(shipped: Any, way: str) -> None:
    """Offsets alone are compared only where the base is what the launch gave, on all ways there."""
    code, sure = BASES[way]
    tool, tests = shipped("memcheck"), list[Any]()

    def instrument(task: Any) -> None:
        tool.instrument(task)
        calls = [one.call for one in task.insertions if one.hook.name == "access"]
        tests.extend(call.guard for call in calls if call.guard is not None)

    patch_object(assembled(kernel_text(function("k", [*LOADED, *code, "s_endpgm"]), "gfx90a"), "gfx90a"), instrument)
    assert len(tests) == sure
    (held,) = tool._held.values()
    assert [(one.claim.kind, one.claim.argument) for one in held] == [("offsets", 8)] * sure


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_what_accesses_cost(bench: Any, shipped: Any, target: str) -> None:
    """For accesses inside the memory of a kernel's arguments, the number of instructions about doubles."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void stencil(const float *a, const float *b, float *c, int n) {
      for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n - 4; k += 256)
        c[k] = a[k] + a[k + 1] + a[k + 2] * b[k] + b[k + 3];
    }
    """
    arrays = [np.ones(4096, np.float32) for _ in range(3)]
    kernel = bench(source, "stencil", target, *arrays, 4096, grid=4)
    tool = shipped("memcheck")
    for place in kernel.placed[:3]:
        address = {"address": place.address, "size": 4 * 4096, "reserved": 4 * 4096}
        tool.at_memory_event(ApiEvent("allocated", False, 1, 1, 1, 0, address))
    kernel.launch(kernel.object.data)
    before = kernel.device.stats.instructions
    tables = watched(kernel, tool, [])
    assert tables["bad accesses"] == []
    most = 2.11 if target == "gfx1100 wave64" else 2.01  # GFX11.0 wants waits around masks of 64 lanes
    assert kernel.device.stats.instructions <= most * before


def test_scalar_loads(bench: Any, shipped: Any) -> None:
    """Scalar loads are checked once for each wave."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void uniform(const unsigned *__restrict__ in, unsigned *__restrict__ out, int at) {
      out[blockIdx.x * blockDim.x + threadIdx.x] = in[at];
    }
    """
    layout = Layout([(PAGE, 100, 356, False)], 3 * PAGE)
    for at, expected in ((24, []), (25, [("read", 4, 0, 2 * GROUPS)])):
        memory, out = np.zeros(layout.size, np.uint8), np.zeros(BLOCK * GROUPS, np.uint32)
        kernel = bench(source, "uniform", "gfx90a", memory, out, PAGE // 4 + at, grid=GROUPS, block=BLOCK)
        tables = watched(kernel, shipped("memcheck"), layout.events(kernel.placed[0].address))
        table = tables.get("bad accesses", [])
        assert [(row["access"], row["bytes"], row["distance"], row["lanes"]) for row in table] == expected
        assert all(row["instruction"].startswith("s_load") for row in table)
