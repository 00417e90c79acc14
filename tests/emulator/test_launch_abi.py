"""The initial state of kernels on every target: packet, hidden arguments, ids, apertures, stacks, registers.

Expected values are those of the HSA specification and LLVM AMDGPUUsage ("Initial Kernel Execution State", "Code Object
V5 Metadata"), written out here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from effort import EMULATED, EVERYTHING
from luthier.devices import open_device
from luthier.emulator import KernelHandle, Module
from luthier.errors import EmulationError
from luthier.isa.targets import target_named

pytestmark = pytest.mark.rows()

WAVE64 = ("-mwavefrontsize64", "-U__AMDGCN_WAVEFRONT_SIZE", "-D__AMDGCN_WAVEFRONT_SIZE=64")
CASES = [(name, 4 + index % 3) for index, name in enumerate([*EMULATED, "gfx1100 wave64", "gfx1201 wave64"])]
if EVERYTHING:
    CASES = [(name, version) for name, _ in CASES for version in (4, 5, 6)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]} v{case[1]}".replace(" ", "-"))
def module(request: pytest.FixtureRequest, build_kernels: Callable[..., Path]) -> Module:
    name, version = request.param
    processor, _, wave = name.partition(" ")
    flags = (f"-mcode-object-version={version}", f"-DHIDDEN_WORDS={14 if version == 4 else 52}")
    device = open_device(f"emu:{processor}", threads=2)
    module = device.load(build_kernels("abi", processor, *flags, *(WAVE64 if wave else ())))
    assert module.object.abi == version
    return module


@pytest.mark.rows(1)
def test_packet_and_hidden_arguments(module: Module) -> None:
    kernel = module.kernel("launch_state")
    grid, block, dynamic = (3, 2, 1), (8, 4, 2), 96
    out, pointers = np.zeros(80, np.uint32), np.zeros(8, np.uint64)
    kernel.launch(out, pointers, grid=(1, *grid[1:]), block=block, dynamic_lds=dynamic)
    kernel.launch(out, pointers, grid=grid, block=block, dynamic_lds=dynamic)
    packet = out[:16].tobytes()
    setup, x, y, z = struct.unpack_from("<HHHH", packet, 2)
    assert (setup, x, y, z) == (3, *block)
    assert struct.unpack_from("<III", packet, 12) == tuple(g * b for g, b in zip(grid, block, strict=True))
    private, group, descriptor, kernarg = struct.unpack_from("<IIQQ", packet, 24)
    assert private >= kernel.kernel.private_segment_fixed_size > 0
    assert group == 32 + dynamic
    assert kernarg == pointers[0]
    assert descriptor == module.image.host(kernel.kernel.descriptor_address)
    assert pointers[4] == pointers[5] == 32
    # The queue's words on apertures are what generic pointers carry.
    shared_base, private_base = int(pointers[7]) >> 32, int(pointers[7]) & 0xFFFFFFFF
    assert int(pointers[2]) >> 32 == shared_base
    assert int(pointers[6]) >> 32 == private_base
    assert len({shared_base, private_base, int(pointers[1]) >> 32}) == 3

    hidden = out[16:].tobytes()
    if module.object.abi == 4:
        assert not any(hidden[:56])  # offsets, and services that do not exist
        return
    assert struct.unpack_from("<III", hidden, 0) == grid
    assert struct.unpack_from("<HHHHHH", hidden, 12) == (*block, 0, 0, 0)
    assert not any(hidden[24:64])
    assert struct.unpack_from("<H", hidden, 64) == (3,)
    assert not any(hidden[66:120])  # printf, hostcall, grid synchronisation of several devices, heap, queues
    assert struct.unpack_from("<I", hidden, 120) == (dynamic,)
    assert struct.unpack_from("<Q", hidden, 200) == (pointers[1],)


@pytest.mark.rows(1)
@pytest.mark.parametrize(("grid", "block", "dims"), [(3, 8, 1), ((3, 2), 8, 2), (3, (8, 2), 2), ((1, 1, 2), 1, 3)])
def test_dimensions(module: Module, grid: tuple[int, ...], block: tuple[int, ...], dims: int) -> None:
    out, pointers = np.zeros(80, np.uint32), np.zeros(8, np.uint64)
    module.kernel("launch_state").launch(out, pointers, grid=grid, block=block, dynamic_lds=4)
    assert out[0] >> 16 == dims
    if module.object.abi > 4:
        assert out[32] & 0xFFFF == dims


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_ids_of_one_axis(module: Module, axis: int) -> None:
    """A kernel that requests one id gets it without the ids that share its register on some targets."""
    grid, block = (2, 3, 4), (5, 4, 3)
    out = np.zeros(64, np.uint32)
    module.kernel("ids_" + "xyz"[axis]).launch(out, grid=grid, block=block)
    expected = np.zeros((4, 16), np.uint32)
    copies = np.prod(grid) // grid[axis] * np.prod(block) // block[axis]
    expected[: grid[axis], : block[axis]] = copies
    assert np.array_equal(out.reshape(4, 16), expected)


@pytest.mark.parametrize(
    ("grid", "block"),
    [((2, 3, 2), (5, 3, 4)), ((1, 1, 3), (1, 1, 100)), ((2, 2, 1), (3, 50, 1)), ((1, 2, 2), (33, 1, 2)), (7, 1)],
)
def test_ids_in_partial_waves(module: Module, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    full_grid, full_block = ((*(size if isinstance(size, tuple) else (size,)), 1, 1)[:3] for size in (grid, block))
    shape = tuple(g * b for g, b in zip(full_grid[::-1], full_block[::-1], strict=True))
    out = np.zeros(shape, np.uint32)
    module.kernel("ids_all").launch(out, grid=grid, block=block)
    z, y, x = np.indices(shape).astype(np.uint32)
    assert np.array_equal(out, x | y << 8 | z << 16 | np.uint32(full_grid[2] * 16 + full_block[1]) << 24)


def test_generic_pointers(module: Module) -> None:
    """Into LDS, the stack, global memory, and different ones in one wave."""
    out, memory = np.zeros((100, 6), np.uint32), np.zeros(100, np.uint32)
    module.kernel("spaces").launch(out, memory, block=100)
    item = np.arange(100)
    local = np.array([item, 20 + 0 * item, 30 + 0 * item, 40 + 0 * item])[item & 3, item] + 1
    local += (item % 3 == 1) & (item & 3 == 1)
    shared, stored = item * 5 + 1 + (item % 3 == 0), item * 7 + 1 + (item % 3 == 2)
    assert np.array_equal(out[:, 0], shared)
    assert np.array_equal(out[:, 1], local)
    assert np.array_equal(out[:, 2], stored)
    assert np.array_equal(memory, stored)
    assert np.all(out[:, 3] == 0x321)
    assert np.array_equal(out[:, 4], item % 3 + 1)
    second = np.where(item & 3 == 1, 22, 21)
    assert np.array_equal(out[:, 5], np.where(item % 3 == 0, shared, np.where(item % 3 == 1, second, stored)))


def _step(kind: int, n: int, x: int) -> int:
    mask = 0xFFFFFFFF
    if kind == 0:
        return x if n == 0 else (_step(x & 1, n - 1, ((n + x) * 3 + 1) & mask) + n) & mask
    return n ^ x if n == 0 else _step(n & 1, n - 1, (x // 2 + 4) & mask) ^ n


def test_recursion_through_pointers(module: Module) -> None:
    numbers = np.random.default_rng(8).integers(0, 1 << 32, 96, np.uint32)
    out = np.zeros_like(numbers)
    kernel = module.kernel("stacks")
    kernel.launch(numbers, out, grid=2, block=48)
    assert kernel.kernel.uses_dynamic_stack
    assert out.tolist() == [_step(index & 1, int(x) & 31, int(x)) for index, x in enumerate(numbers)]


def test_stack_overflow(module: Module) -> None:
    with pytest.raises(EmulationError, match="outside the lane's scratch") as caught:
        module.kernel("endless_stack").launch(np.zeros(64, np.uint32), block=64)
    assert re.search(r"\((scratch|buffer|flat)_(load|store)", caught.value.message)
    out = np.zeros(8, np.uint32)
    module.kernel("ids_x").launch(out, block=8)
    assert np.all(out == 1)


def test_arrays_of_a_size_known_at_launch(module: Module) -> None:
    out = np.zeros(40, np.uint32)
    module.kernel("dynamic_array").launch(out, 50, block=40)
    for item in (0, 1, 39):
        total = 0
        for index in range(50):
            total = (total * 3 + index * 7 % 50 * item) & 0xFFFFFFFF
        assert out[item] == total


# Registers at the entry, of a kernel that asks for all of them ------------------------------------------------------


def _register_dump(processor: str, wave_size: int) -> str:
    """Assembly of a kernel that writes its first 32 SGPRs, ttmp7 to ttmp9, EXEC and v0 to v2: a record a wave."""
    target = target_named(processor)
    major = target.major
    architected = target.architected_flat_scratch
    kernarg = 4 if architected else 8
    wait = "s_wait_loadcnt 0x0\n s_wait_kmcnt 0x0" if major == 12 else "s_waitcnt vmcnt(0) lgkmcnt(0)"
    returns = "th:TH_ATOMIC_RETURN" if major == 12 else "sc0" if processor in ("gfx942", "gfx950") else "glc"
    exec_ = "exec" if wave_size == 64 else "exec_lo"
    saved = "s[46:47]" if wave_size == 64 else "s46"
    mov = "s_mov_b64" if wave_size == 64 else "s_mov_b32"
    lines = [
        f"s_load_dwordx2 s[40:41], s[{kernarg}:{kernarg + 1}], 0x0",
        wait,
        f"{mov} {saved}, {exec_}",
        f"{mov} {exec_}, 1",
        "v_mov_b32 v10, 0",
        "v_mov_b32 v11, 1",
        f"global_atomic_add v12, v10, v11, s[40:41] {returns}",
        wait,
        "v_readfirstlane_b32 s42, v12",
        "s_lshl_b32 s42, s42, 10",
        "s_add_u32 s40, s40, s42",
        "s_addc_u32 s41, s41, 0",
    ]
    words = [*(f"s{index}" for index in range(32)), *(["ttmp7", "ttmp8", "ttmp9"] if major == 12 else ["0"] * 3)]
    words += ["s46", "s47" if wave_size == 64 else "0"]
    for index, word in enumerate(words):
        lines += [f"v_mov_b32 v11, {word}", f"global_store_dword v10, v11, s[40:41] offset:{64 + 4 * index}"]
    lines += [f"{mov} {exec_}, {saved}", "v_mbcnt_lo_u32_b32 v10, -1, 0"]
    lines += ["v_mbcnt_hi_u32_b32 v10, -1, v10"] if wave_size == 64 else []
    lines += ["v_lshlrev_b32 v10, 2, v10"]
    for index in range(1 if target.packed_work_item_ids else 3):
        lines.append(f"global_store_dword v10, v{index}, s[40:41] offset:{256 + 256 * index}")
    directives = {
        "user_sgpr_dispatch_ptr": 1,
        "user_sgpr_queue_ptr": 1,
        "user_sgpr_dispatch_id": 1,
        "user_sgpr_private_segment_size": 1,
        "system_sgpr_workgroup_id_x": 1,
        "system_sgpr_workgroup_id_y": 1,
        "system_sgpr_workgroup_id_z": 1,
        "system_sgpr_workgroup_info": 1,
        "system_vgpr_workitem_id": 2,
    }
    if architected:
        directives["enable_private_segment"] = 1
    else:
        directives |= {"user_sgpr_private_segment_buffer": 1, "user_sgpr_flat_scratch_init": 1}
        directives["system_sgpr_private_segment_wavefront_offset"] = 1
    code = function("dump", [*lines, "s_endpgm"])
    size = {"wave_size": wave_size, "sgprs": 60, "vgprs": 16, "private": 16}
    return kernel_text(code, processor, name="dump", **size, directives=directives)


@pytest.fixture(scope="module", params=[*EMULATED, "gfx1030 wave64", "gfx1100 wave64", "gfx1201 wave64"])
def dump(request: pytest.FixtureRequest) -> KernelHandle:
    processor, _, wave = request.param.partition(" ")
    wave_size = 64 if wave else target_named(processor).default_wave_size
    object = assembled(_register_dump(processor, wave_size), processor, wave_size=wave_size)
    return open_device(f"emu:{processor}", threads=2).load(object).kernel("dump")


@pytest.mark.rows(6)
def test_registers_at_the_entry(dump: KernelHandle) -> None:
    device = dump.module.device
    target = device.target.target
    grid, block = (2, 3, 2), (11, 5, 2)
    items, size = 110, dump.kernel.wave_size
    waves = -(-items // size)
    out = device.allocate(1024 * (12 * waves + 1))
    dump.launch(out, grid=grid, block=block)
    data = out.read()
    records = [data[1024 * index :][:1024] for index in range(12 * waves)]
    words = [struct.unpack_from("<37I", record, 64) for record in records]
    at = 0
    if not target.architected_flat_scratch:
        base = {row[0] | (row[1] & 0xFFFF) << 32 for row in words}
        assert len(base) == 1  # of scratch: a wave's own part is an offset
        at += 4
    packet, queue, kernarg, dispatch = (
        {row[at + 2 * index] | row[at + 2 * index + 1] << 32 for row in words} for index in range(4)
    )
    assert queue == {device.queue}
    assert len(packet) == len(kernarg) == len(dispatch) == 1
    at += 8
    if not target.architected_flat_scratch:
        assert {row[at] | row[at + 1] << 32 for row in words} == base
        at += 2
    assert {row[at] for row in words} == {16}  # bytes of scratch a lane
    at += 1
    first_and_count = [row[at if target.architected_sgprs else at + 3] for row in words]
    if target.architected_sgprs:
        groups = [(row[34], row[32] & 0xFFFF, row[32] >> 16) for row in words]
        numbers = [row[33] >> 25 & 31 for row in words]
    else:
        groups = [row[at : at + 3] for row in words]
        numbers = None
    everyone = sorted((x, y, z) for x in range(2) for y in range(3) for z in range(2) for _ in range(waves))
    assert sorted(tuple(group) for group in groups) == everyone
    assert {word & 63 for word in first_and_count} == {waves}
    assert sum(word >> 31 for word in first_and_count) == 12
    if not target.architected_flat_scratch:
        offsets = [row[at + 4] for row in words]
        assert all(offset % (16 * size) == 0 for offset in offsets)
        # Two threads, each with as many places as a work-group has waves.
        assert {offset // (16 * size) % waves for offset in offsets} == set(range(waves))

    flat = np.arange(waves * size)
    present = flat < items
    ids = np.where(present, flat % 11 | flat // 11 % 5 << 10 | flat // 55 << 20, 0).reshape(waves, size)
    seen = []
    for index, (record, row) in enumerate(zip(records, words, strict=True)):
        mask = row[35] | row[36] << 32
        if target.packed_work_item_ids:
            actual = np.frombuffer(record, np.uint32, size, 256)
        else:
            x, y, z = (np.frombuffer(record, np.uint32, size, 256 + 256 * axis) for axis in range(3))
            actual = x | y << 10 | z << 20
        number = next(wave for wave in range(waves) if np.array_equal(actual, ids[wave]))
        assert mask == sum(1 << lane for lane in range(size) if present[number * size + lane])
        assert (first_and_count[index] >> 31) == (number == 0)
        assert numbers is None or numbers[index] == number
        seen.append((*groups[index], number))
    assert len(set(seen)) == 12 * waves


@pytest.mark.parametrize("processor", ["gfx906", "gfx1030"])
@pytest.mark.parametrize("private", [1024, 17000, 40000])
def test_stack_pointers_count_the_bytes_of_all_lanes(processor: str, private: int) -> None:
    """Scratch by a descriptor, of more bytes a lane than its stride has bits for, too."""
    size = target_named(processor).default_wave_size
    place = private - 16
    store = "v_lshlrev_b32 v0, 2, v0", "global_store_dword v0, v3, s[10:11]"
    lines = [
        "s_add_u32 s0, s0, s7",
        "s_addc_u32 s1, s1, 0",
        "s_load_dwordx2 s[10:11], s[4:5], 0x0",
        f"s_mov_b32 s8, {place * size}",
        "v_add_u32 v1, 1000, v0" if processor == "gfx906" else "v_add_nc_u32 v1, 1000, v0",
        "buffer_store_dword v1, off, s[0:3], s8 offset:8",
        f"v_mov_b32 v2, {place}",
        "buffer_load_dword v3, v2, s[0:3], 0 offen offset:8",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        *store,
        "s_endpgm",
    ]
    directives = {"user_sgpr_private_segment_buffer": 1, "system_sgpr_private_segment_wavefront_offset": 1}
    text = kernel_text(
        function("k", lines), processor, name="k", sgprs=16, vgprs=4, private=private, directives=directives
    )
    out = np.zeros(256, np.uint32)
    open_device(f"emu:{processor}", threads=1).load(assembled(text, processor)).kernel("k").launch(out, block=256)
    assert out.tolist() == [1000 + item for item in range(256)]
