"""A loaded kernel with replaced instructions runs as if it were loaded with them."""

from __future__ import annotations

import contextlib
import warnings

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.emulator import CheckWarning
from luthier.errors import DeviceError, EmulationError
from luthier.isa import Isa
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object

TARGETS = ["gfx906", "gfx90a", "gfx942"]
BODY = """
v_mov_b32 v1, 5
v_add_u32 v1, 0x12345, v1
v_lshlrev_b32 v0, 2, v0
s_load_dwordx2 s[2:3], s[0:1], 0x0
s_waitcnt lgkmcnt(0)
v_readlane_b32 s4, v1, 0
s_nop 4
v_mov_b32 v2, s4
v_readlane_b32 s5, v1, s4
global_store_dword v0, v2, s[2:3]
s_cbranch_scc0 end
s_nop 0
end: s_endpgm
"""


def kernel_of(target: str) -> CodeObject:
    return assembled(kernel_text(function("k", BODY.strip().splitlines()), target), target)


class Loaded:
    """A kernel on a device with both checks."""

    def __init__(self, object: CodeObject) -> None:
        self.object = object
        self.device = luthier.open_device(f"emu:{object.target.target.name}", check=["waits", "hazards"])
        self.module = self.device.load(object)
        self.lifted = lift(object, "k")

    def run(self) -> tuple[list[int], list[str]]:
        """Return what the kernel writes, and the findings."""
        out = np.zeros(64, np.uint32)
        with warnings.catch_warnings(), contextlib.suppress(EmulationError):
            warnings.simplefilter("ignore", CheckWarning)
            self.module.kernel("k").launch(out, block=64)
        return sorted(set(out.tolist())), [str(one) for one in self.device.findings]

    def place(self, mnemonic: str) -> int:
        """Address of the first such instruction."""
        return next(one.address for one in self.lifted.instructions if one.text.startswith(mnemonic))

    def put(self, address: int, text: str) -> bytes:
        """Other instructions at an address; what was there."""
        data = Isa.of(self.object.target, 64).assemble(text).instructions.code
        segment = next(one for one in self.object.segments if one.vaddr <= address < one.vaddr + one.filesz)
        begin = address - segment.vaddr + segment.offset
        self.module.rewrite(address, data)
        return self.object.data[begin : begin + len(data)]


@pytest.mark.rows(11)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("at", "text", "result"),
    [
        ("v_mov", "v_mov_b32 v1, 7", 0x12345 + 7),  # the same operation of other operands
        ("v_mov", "v_not_b32 v1, 7", 0x12345 + (7 ^ 0xFFFFFFFF) & 0xFFFFFFFF),
        ("v_mov", "v_mov_b32 v1, 0x1111\nv_add_u32 v1, 5, v1", 0x1116),  # the longer one is another one
        ("v_readlane", "v_readlane_b32 s4, v0, 3", 12),
    ],
)
def test_results(target: str, at: str, text: str, result: int) -> None:
    loaded = Loaded(kernel_of(target))
    assert loaded.run() == ([0x12345 + 5], [])
    for _ in range(2):
        before = loaded.put(loaded.place(at), text)
        assert loaded.run() == ([result], [])
        loaded.module.rewrite(loaded.place(at), before)
        assert loaded.run() == ([0x12345 + 5], [])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("at", "text", "message"), [("s_waitcnt", "s_nop 0", "missing-wait"), ("s_nop 4", "s_nop 0", "hazard")]
)
def test_checks(target: str, at: str, text: str, message: str) -> None:
    """Checks use the current instructions."""
    loaded = Loaded(kernel_of(target))
    for _ in range(2):
        assert not loaded.run()[1]
        before = loaded.put(loaded.place(at), text)
        _, sightings = loaded.run()
        assert sightings
        assert all(one.startswith(message) for one in sightings), sightings
        loaded.module.rewrite(loaded.place(at), before)


def test_what_is_refused() -> None:
    loaded = Loaded(kernel_of("gfx942"))
    nop = bytes.fromhex("000080bf")
    mov = loaded.place("v_mov")
    for address, data in (
        (mov + 2, nop),
        (mov - 4096, nop),
        (mov, b""),
        (mov, nop[:3]),
        (mov + 4, nop),  # the half of one
        (mov, nop * 2),  # one and a half
        (mov + 4, nop * 2),  # two for one
        (loaded.place("s_cbranch"), nop),
        (loaded.place("s_endpgm"), nop),
        (mov, bytes.fromhex("000081bf")),  # s_endpgm
        (mov, b"\xff" * 4),
    ):
        with pytest.raises(DeviceError):
            loaded.module.rewrite(address, data)
        assert loaded.run() == ([0x12345 + 5], [])


def test_memory_has_the_instructions() -> None:
    loaded = Loaded(kernel_of("gfx942"))
    address = loaded.place("v_mov")
    loaded.put(address, "v_mov_b32 v1, 7")
    host = loaded.module.image.host(address)
    holder = next(one for one in loaded.module.image.allocations if one.address <= host < one.end)
    assert bytes(holder.view()[host - holder.address :][:4]) == bytes.fromhex("8702027e")
    assert load_object(loaded.object.data).data == loaded.object.data
