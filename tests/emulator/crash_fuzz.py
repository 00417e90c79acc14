"""A process that runs random machine code on an emulated device, for `test_crash_fuzz`.

    python crash_fuzz.py OBJECT TARGET SEED SECONDS LAST

OBJECT is ``kernels/room.hip`` for TARGET. Its code, and sometimes its descriptor, are replaced by random ones and
launched, again and again: each launch must end in time, with a result or a `LuthierError`. Host memory that compiled
code works on has pages without access around it (the native executor's always has), so an access out of bounds ends the
process. What a launch must not
change is compared afterwards. The object of each launch is written to LAST before, so that of a crash is tseeds.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
import time
from pathlib import Path

import numpy as np
from luthier.devices import open_device
from luthier.emulator import EmulatedDevice, layout
from luthier.emulator.binding.program import RECORD_TYPE
from luthier.emulator.constants import inline_bytes
from luthier.emulator.inspection.coverage import NOT_COMPUTE, samples
from luthier.emulator.running import memory
from luthier.emulator.running.memory import host_bytes
from luthier.emulator.running.worker import get_field, worker_at
from luthier.errors import LuthierError
from luthier.isa import InstructionArray, Isa
from luthier.objects import CodeObject, ObjectEditor

PAGE = mmap.PAGESIZE
_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class GuardedArena(memory.Arena):
    """An arena that ends at a page without access, and begins after one."""

    def __init__(self, size: int) -> None:
        room = -(-(max(size, 1) + 64) // 256) * 256
        pages = -(-room // PAGE) * PAGE
        self._map = mmap.mmap(-1, pages + 2 * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        start = whole.ctypes.data
        for guard in (start, start + PAGE + pages):
            if _protect(guard, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = PAGE + pages - room
        self.array = whole[first : first + room]
        self.address = start + first
        self.size = size


_WAIT = {9: ["s_waitcnt 0"], 10: ["s_waitcnt 0"], 11: ["s_waitcnt 0"], 12: ["s_wait_kmcnt 0x0"]}


def guard_everything() -> None:
    """Let every arena be a guarded one, and every allocation an arena."""
    memory.Arena.__init__ = GuardedArena.__init__  # type: ignore[method-assign]
    plain = memory.np.zeros

    class _Numpy:
        """NumPy as `memory` sees it: small allocations are made by `zeros`."""

        def __getattr__(self, name: str) -> object:
            return getattr(np, name)

        @staticmethod
        def zeros(size: int, kind: object = np.uint8) -> object:
            return GuardedArena(size).array if size else plain(size, kind)

    memory.np = _Numpy()  # type: ignore[assignment]


class Instructions:
    """Random instructions of one target."""

    def __init__(self, isa: Isa, random: np.random.Generator, budget: int) -> None:
        self.isa = isa
        self.random = random
        self._all = [pair for pair in samples(isa).items() if not isa.opcode(pair[0]).flags & NOT_COMPUTE]
        self._pool: list[bytes] = []
        self.renew(budget)

    def renew(self, count: int) -> None:
        """Choose the instructions that programs are made of from now on: each costs compilation."""
        self._pool = [self.fresh() for _ in range(count)]

    def fresh(self) -> bytes:
        """An instruction of a random opcode with random operands and modifiers."""
        random = self.random
        number, (code, index) = self._all[int(random.integers(len(self._all)))]
        plain = code.bytes_of(index)
        bits = 8 * len(plain)
        for _ in range(20):
            keep = int.from_bytes(plain, "little")
            # Few bits changed most of the time: fields of an encoding must fit each other.
            share = random.choice([0.05, 0.2, 0.5])
            flips = sum(1 << int(bit) for bit in np.flatnonzero(random.random(bits) < share))
            decoded = self._decoded((keep ^ flips).to_bytes(len(plain), "little"), number)
            if decoded is not None:
                return decoded
        return plain

    def _decoded(self, raw: bytes, number: int) -> bytes | None:
        decoded: InstructionArray = self.isa.decode(raw + bytes(8))
        if not len(decoded) or int(decoded.opcode[0]) != number:
            return None
        return decoded.bytes_of(0)

    def prologue(self, kernarg: int) -> bytes:
        """Registers with which memory accesses may succeed: in every fourth register a buffer's address, its
        descriptor from s0 on, small numbers elsewhere."""
        lines = [f"s_load_dwordx2 s[20:21], s[{kernarg}:{kernarg + 1}], 0x0", *_WAIT[self.isa.target.target.major]]
        word3 = 0x27000 | (0 if self.isa.target.target.major == 9 else 3 << 28)
        for first in range(0, 20, 4):
            lines += [f"s_mov_b64 s[{first}:{first + 1}], s[20:21]", f"s_movk_i32 s{first + 2}, 0x1000"]
            lines += [f"s_mov_b32 s{first + 3}, {word3:#x}"]
        lines += ["s_mov_b32 m0, 0x10", "v_and_b32 v0, 63, v0", "v_lshlrev_b32 v0, 2, v0"]
        for first in range(0, 16, 4):
            lines += [f"v_mov_b32 v{first + 1}, v0", f"v_mov_b32 v{first + 2}, s20", f"v_mov_b32 v{first + 3}, s21"]
        return self._words("\n".join(lines))

    def program(self, words: int, start: bytes) -> bytes:
        """Return random code of at most `words` words that ends the kernel unless a branch leaves it."""
        random = self.random
        code = start
        for _ in range(int(random.integers(1, 12))):
            kind = random.random()
            if kind < 0.06:
                distance = int(random.integers(-12, 20)) & 0xFFFF
                text = random.choice(["s_branch", "s_cbranch_scc0", "s_cbranch_vccnz", "s_cbranch_execz"])
                code += distance.to_bytes(2, "little") + self._words(f"{text} 0")[2:]
            elif kind < 0.07:
                code += int(random.integers(1 << 32)).to_bytes(4, "little")
            else:
                code += self._pool[int(random.integers(len(self._pool)))]
        return code[: 4 * (words - 4)] + self._words("s_endpgm") * 4

    def _words(self, text: str) -> bytes:
        return bytes(self.isa.assemble(text).instructions.code)


def random_descriptor(raw: bytes, random: np.random.Generator, wild: bool) -> bytes:
    """The descriptor with other bits in its register setup and properties; if `wild`, anywhere."""
    word = int.from_bytes(raw, "little")
    for _ in range(int(random.integers(1, 12))):
        low, high = (0, 512) if wild else (8 * 44, 8 * 60)
        word ^= 1 << int(random.integers(low, high))
    return word.to_bytes(64, "little")


def check(device: EmulatedDevice) -> None:
    """Check state that no kernel may change: the data that runs the first worker's waves."""
    codes = list(device._modules[-1]._codes.values()) if device._modules else []
    if not codes:
        return
    context, group = device._executor.own()
    worker = worker_at(codes[-1], context, group)
    for index in range(worker.group_field("wave_count")):
        wave = worker.wave(index)
        constants = wave[layout.CONSTANTS : layout.CONSTANTS + len(inline_bytes())].tobytes()
        assert constants == inline_bytes(), "inline constants were overwritten"
        for name, value in (("index", index), ("lds", worker.group_field("lds")), ("context", context)):
            assert get_field(wave, layout.WAVE, name) == value, f"{name} of a wave was overwritten"
    tables = host_bytes(get_field(worker.wave(0), layout.WAVE, "tables"), 8 * layout.TABLES).view(np.uint64)
    for code in codes:
        for key, master in code._tables.items():
            if tables[key]:
                size = RECORD_TYPE.itemsize * (code.count + 1)
                copy = host_bytes(int(tables[key]), size).view(RECORD_TYPE)["function"]
                same = (copy == master.records["function"]) | (copy == code._unbound)
                same[code.begin] = True
                assert same.all(), "a record's function was overwritten"


LEAST = 96
"""Launches, however long they take: the first ones compile what all others find."""


def main() -> None:
    path, target, seed, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    guard_everything()
    last = Path(sys.argv[5])
    parsed = CodeObject(Path(path).read_bytes())
    kernel = parsed.kernels["room"]
    wave_size = kernel.wave_size
    isa = Isa.of(target, wave_size)
    device = open_device(f"emu:{target}", threads=2)
    device.step_limit = 3
    before, buffer, after = GuardedArena(4096), device.allocate(4096), GuardedArena(4096)
    seeds = np.random.default_rng(seed)
    instructions = Instructions(isa, seeds, 30)
    outcomes: dict[str, int] = {}
    began = time.process_time()  # the machine may have other work
    count = 0
    while time.process_time() - began < seconds or count < LEAST:
        count += 1
        if count % 8 == 0:
            instructions.renew(30)
        editor = ObjectEditor(parsed)
        tame = seeds.random() < 0.7
        start = instructions.prologue(kernel.descriptor.sgpr_inputs["kernarg_segment_ptr"][0]) if tame else b""
        code = instructions.program(kernel.code_size // 4, start)
        editor.write(kernel.entry, code)
        wild = seeds.random() < 0.1
        raw = kernel.descriptor.with_registers(vgprs=250).encode()
        editor.write(kernel.descriptor_address, raw)
        if wild or (not tame and seeds.random() < 0.5):
            editor.write(kernel.descriptor_address, random_descriptor(raw, seeds, wild))
        block = tuple(int(seeds.integers(1, 9)) for _ in range(3))
        started = time.monotonic()
        counted = device._stats
        try:
            data = editor.finish()
            last.write_bytes(data)
            module = device.load(data)
            near = buffer.address + 4 * int(seeds.integers(0, 256))
            watched = (lambda step: None) if seeds.random() < 0.1 else None
            module.kernel("room").launch(near, near, grid=(2, 1, 2), block=block, trace=watched)
            outcome = "ended"
        except LuthierError as problem:
            outcome = re.sub(r"[0-9].*", "", str(problem))[:40]
        finally:
            if device._stats is not counted:  # it was executed
                check(device)
        spent = time.monotonic() - started
        assert spent < 60, f"launch {count} took {spent:.0f} s"
        assert not before.array.any(), "memory of the process was written"
        assert not after.array.any(), "memory of the process was written"
        for loaded in list(device._modules):
            loaded.unload()
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(f"{count} launches:", dict(sorted(outcomes.items(), key=lambda item: -item[1])))


if __name__ == "__main__":
    main()
