"""Bad kernels and bad launches: an error that says everything, and a device that works afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import Module
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import DeviceError, EmulationError, LuthierError, ObjectError
from luthier.objects import ObjectEditor, load_object
from msgspec.structs import replace

TARGETS = ("gfx90a", "gfx942", "gfx1100")


@pytest.fixture(scope="module", params=TARGETS)
def groups(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Module:
    device = open_device(f"emu:{request.param}", threads=2)
    device.step_limit = 200
    return device.load(build_kernels("groups", request.param))


@pytest.fixture(autouse=True)
def device_stays_usable(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test on a device an ordinary kernel runs and is right."""
    yield
    if "groups" not in request.fixturenames:
        return
    groups: Module = request.getfixturevalue("groups")
    data = np.arange(300, dtype=np.uint32)
    out = np.zeros_like(data)
    groups.kernel("dynamic_reverse").launch(data, out, grid=3, block=100, dynamic_lds=400)
    assert np.array_equal(out, data.reshape(3, 100)[:, ::-1].ravel())


def test_past_the_end_of_a_buffer(groups: Module) -> None:
    buffer = groups.device.allocate(256)
    with pytest.raises(EmulationError) as caught:
        groups.kernel("wild").launch(buffer, 60, grid=1, block=64)
    error = caught.value
    text = str(error)
    assert f"{buffer.address + 256:#x}" in text
    assert "lane 4" in text
    assert "0 bytes past the end of buffer of 256 bytes" in text
    assert "store" in text
    assert error.kernel == "wild"
    assert error.offset is not None
    assert groups.object.kernels["wild"].entry <= error.offset
    buffer.free()


def test_null_pointer(groups: Module) -> None:
    with pytest.raises(EmulationError, match=r"lane 0: a null pointer"):
        groups.kernel("wild").launch(0, 0, grid=1, block=64)


def test_freed_memory(groups: Module) -> None:
    buffer = groups.device.allocate(256)
    address = buffer.address
    groups.kernel("wild").launch(address, 0, grid=1, block=64)
    buffer.free()
    with pytest.raises(EmulationError, match="access to 4 bytes at address"):
        groups.kernel("wild").launch(address, 0, grid=1, block=64)


def test_past_the_end_of_lds(groups: Module) -> None:
    """By a FLAT instruction; other instructions read 0 there (`test_lds_bounds.py`)."""
    with pytest.raises(EmulationError, match=r"LDS at offset 0x4\w, lane \d+: the work-group has 64 bytes"):
        groups.kernel("wild_lds").launch(np.zeros(64, np.int32), 1, grid=1, block=64)


def test_a_kernel_that_never_ends(groups: Module) -> None:
    with pytest.raises(EmulationError, match="does not end") as caught:
        groups.kernel("forever").launch(np.zeros(1, np.uint32), grid=4, block=128)
    assert "wave 1 runs at 0x" in str(caught.value)
    assert "EXEC 0x" in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"grid": 0, "block": 64}, "must be three positive numbers"),
        ({"grid": (1, 1, 1), "block": (64, -1)}, "must be three positive numbers"),
        ({"grid": (1, 1, 1, 1), "block": 64}, "one to three numbers"),
        ({"grid": 1, "block": 2048}, "2048 work-items"),
        ({"grid": 1, "block": 64, "dynamic_lds": 1 << 20}, "bytes of LDS"),
        ({"grid": 1, "block": 64, "dynamic_lds": -4}, "bytes of LDS"),
    ],
)
def test_launches_no_device_takes(groups: Module, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        groups.kernel("forever").launch(np.ones(1, np.uint32), **sizes)


def test_wrong_arguments(groups: Module) -> None:
    kernel = groups.kernel("wild")
    with pytest.raises(DeviceError, match="takes 2 arguments"):
        kernel.launch(1)
    with pytest.raises(DeviceError, match="cannot hold"):
        kernel.launch(1 << 64, 0)
    array = np.zeros(4, np.int32)
    array.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        kernel.launch(array, 0)


def test_names_that_do_not_exist(groups: Module) -> None:
    with pytest.raises(ObjectError, match="no kernel 'nothing'; there are: "):
        groups.kernel("nothing")
    with pytest.raises(ObjectError, match="no variable 'nothing'"):
        groups.variable("nothing")
    with pytest.raises(DeviceError, match="emu:"):
        open_device("cuda:0")
    with pytest.raises(LuthierError, match="gfx9999"):
        open_device("emu:gfx9999")


def test_code_of_another_target(groups: Module) -> None:
    other = "gfx1030" if groups.device.target.target.name != "gfx1030" else "gfx942"
    with pytest.raises(ObjectError):
        open_device(f"emu:{other}").load(groups.object)


def test_what_is_not_executed_may_be_anything() -> None:
    source = "s_branch end\n.long 0xffffffff\nimage_load v[0:3], v[4:5], s[0:7] dmask:0xf unorm\nend:\nv_mov_b32 v0, 7"
    assert run_assembly("gfx906", source).vgpr(0)[5] == 7


def test_an_undecodable_word() -> None:
    with pytest.raises(EmulationError, match=r"cannot execute the instruction at 0x4 .*undecodable"):
        run_assembly("gfx942", "s_nop 0\n.long 0xffffffff")


def test_an_image_operation() -> None:
    with pytest.raises(EmulationError, match=r"0x0 \(image_get_resinfo v\[0:3\].*no operation image_get_resinfo"):
        run_assembly("gfx906", "image_get_resinfo v[0:3], v4, s[0:7] dmask:0xf unorm")


def test_a_misaligned_atomic() -> None:
    memory = AllocationTable()
    place = memory.allocate(64)
    with pytest.raises(EmulationError, match="misaligned"):
        run_assembly(
            "gfx942",
            "global_atomic_add v0, v1, s[0:1] offset:2",
            {0: 0, 1: 1},
            {0: place.address & 0xFFFFFFFF, 1: place.address >> 32},
            memory=memory,
        )


def test_a_jump_out_of_the_code() -> None:
    with pytest.raises(EmulationError, match="jump to 0x1234, where no instruction"):
        run_assembly("gfx942", "s_mov_b64 s[0:1], 0x1234\ns_setpc_b64 s[0:1]")


def test_a_trap() -> None:
    with pytest.raises(EmulationError, match="trap 2"):
        run_assembly("gfx942", "s_trap 2")


def test_a_branch_past_the_end() -> None:
    with pytest.raises(EmulationError, match="branch target 0x8 is outside the code"):
        run_assembly("gfx942", "s_branch 1")


def test_unaligned_access_works_as_on_hardware() -> None:
    memory = AllocationTable()
    place = memory.allocate(64)
    place.view()[:] = np.arange(64)
    state = run_assembly(
        "gfx942",
        "global_load_dword v2, v0, s[0:1] offset:1\nglobal_load_ushort v3, v0, s[0:1] offset:3\ns_waitcnt 0",
        {0: 0},
        {0: place.address & 0xFFFFFFFF, 1: place.address >> 32},
        memory=memory,
    )
    assert state.vgpr(2)[0] == 0x04030201
    assert state.vgpr(3)[0] == 0x0403


def test_registers_beyond_the_descriptor(build_kernels: Callable[[str, str], Path]) -> None:
    """A patched kernel whose descriptor was forgotten must not seem to work."""
    path = build_kernels("plain", "gfx942")
    code = load_object(path)
    kernel = code.kernels["integers"]
    editor = ObjectEditor(code)
    smaller = replace(kernel.descriptor, accum_offset=0, granulated_workitem_vgpr_count=0)
    editor.write(kernel.descriptor_address, smaller.encode())
    module = open_device("emu:gfx942").load(editor.finish())
    arrays = [np.ones(24 * 64, np.uint32) for _ in range(3)]
    with pytest.raises(EmulationError, match=r"uses v\d+; the kernel descriptor allocates 8\b"):
        module.kernel("integers").launch(*arrays, 64, grid=1, block=64)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942"])
def test_scalar_registers_beyond_the_descriptor(target: str, build_kernels: Callable[[str, str], Path]) -> None:
    code = load_object(build_kernels("plain", target))
    kernel = code.kernels["stack"]
    assert kernel.descriptor.sgprs > 24
    editor = ObjectEditor(code)
    smaller = replace(kernel.descriptor, granulated_wavefront_sgpr_count=0)
    editor.write(kernel.descriptor_address, smaller.encode())
    for data, good in ((code.data, True), (editor.finish(), False)):
        run = open_device(f"emu:{target}").load(data).kernel("stack").launch
        if good:
            run(np.zeros(64, np.uint32), np.zeros(64, np.uint32), 64, grid=1, block=64)
            continue
        with pytest.raises(EmulationError, match=r"uses s\d+; the kernel descriptor allocates 16"):
            run(np.zeros(64, np.uint32), np.zeros(64, np.uint32), 64, grid=1, block=64)
