"""Random kernels in assembly: any control flow that ends, also irreducible, with calls, several ends, lanes that come
and go, and blocks in which SCC is always live."""

from __future__ import annotations

import functools
import random

from assembly import assembled, function, kernel_text
from luthier.isa.targets import target_named
from luthier.objects import CodeObject

WAVES = 5


class _Writer:
    """Writes one program. s20 is a random number that decides where control goes, s22 the fuel, v3 what is computed."""

    def __init__(self, seed: int, target: str, wave_size: int | None, *, calls: bool, saturated: bool) -> None:
        self.rng = random.Random(f"{seed} {calls} {saturated}")
        self.calls, self.saturated = calls, saturated
        description = target_named(target)
        self.major, self.wide = description.major, (wave_size or description.default_wave_size) == 64
        self.b = "b64" if self.wide else "b32"
        self.exec = "exec" if self.wide else "exec_lo"
        self.vcc = "vcc" if self.wide else "vcc_lo"
        self.full = "s[26:27]" if self.wide else "s26"
        self.functions = ["f0", "f1"] if calls else []

    def program(self) -> list[str]:
        lines = ["load2 s[4:5], s[0:1], 0x0", "workgroup_id s6", "wait_scalar"]
        lines += ["v_mbcnt_lo_u32_b32 v0, -1, 0", *(["v_mbcnt_hi_u32_b32 v0, -1, v0"] if self.wide else [])]
        lines += ["v_mov_b32_e32 v3, v0", f"s_mov_{self.b} {self.full}, {self.exec}"]
        lines += ["s_mul_i32 s20, s6, 0x9E3779B1", f"s_add_i32 s20, s20, {self.rng.randrange(1 << 31):#x}"]
        lines += [f"s_movk_i32 s22, {self.rng.choice((5, 30, 80))}"]
        if self.saturated:
            lines += [f"s_mov_b32 s{number}, {number}" for number in range(36, 102)]
        lines += self.body("k", self.functions, ["k_end"])
        for name in [f"k_end{number or ''}" for number in range(self.rng.choice((1, 1, 3)))]:
            lines += [f"{name}:", *self.end()]
        for number, name in enumerate(self.functions):
            lines += [f".p2align 8\n.type {name},@function\n{name}:"]
            lines += self.body(name, self.functions[number + 1 :], [f"{name}_return"])
            if self.rng.random() < 0.3:  # a wave may end in a function
                lines += [f"s_bitcmp1_b32 s20, 29\n s_cbranch_scc0 {name}_return", *self.end()]
            lines += [f"{name}_return:", f"s_setpc_b64 {self.link(name)}"]
        return lines

    def link(self, name: str) -> str:
        return {"f0": "s[30:31]", "f1": "s[34:35]"}[name]

    def end(self) -> list[str]:
        size = 64 if self.wide else 32
        lines = [f"s_mov_{self.b} {self.exec}, -1"]
        if self.saturated:
            lines += [f"s_add_u32 s20, s20, s{number}" for number in range(36, 102)]
        lines += ["vadd v3, s20, v3", f"s_mul_i32 s7, s6, {4 * size}", "v_lshlrev_b32_e32 v1, 2, v0"]
        lines += ["vadd v1, s7, v1", "global_store v1, v3, s[4:5]"]
        if self.major >= 11 and self.rng.random() < 0.7:
            lines += ["s_nop 0", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)"]
        return [*lines, "s_endpgm"]

    def body(self, name: str, callable_: list[str], ends: list[str]) -> list[str]:
        """Return blocks that go to each other at random, until the fuel is used up."""
        count = self.rng.randrange(1, 9)
        labels = [f"{name}_{number}" for number in range(count)]
        shared = [f"{name}_test{number}" for number in range(count) if self.rng.random() < 0.3]
        lines: list[str] = []
        for label in labels:
            lines += [f"{label}:", "s_cmp_eq_u32 s22, 0", f"s_cbranch_scc1 {ends[0]}", "s_sub_u32 s22, s22, 1"]
            for _ in range(self.rng.randrange(4)):
                lines += self.step(callable_)
            lines += self.leave(label, [*labels, *ends], shared)
        for label in shared:
            place = f"{label}_on"
            lines += [f"{label}:", f"s_cbranch_scc1 {self.rng.choice(labels)}", f"{place}:"]
            lines += [f"s_branch {self.rng.choice([*labels, *ends])}"]
        return [*lines, f"s_branch {ends[0]}"]

    def step(self, callable_: list[str]) -> list[str]:
        rng = self.rng
        mix = ["s_mul_i32 s20, s20, 0x19660D", "s_add_i32 s20, s20, 0x3C6EF35F"]
        kinds = [mix, ["vadd v3, s20, v3"], ["vadd v3, v3, v0"], ["s_lshr_b32 s21, s20, 7", "s_xor_b32 s20, s20, s21"]]
        kinds += [["s_mov_b32 exec_lo, s20"], [f"s_mov_{self.b} {self.exec}, {self.full}"]]
        compare = f"v_cmp_gt_u32_e32 {self.vcc}, {rng.randrange(65)}, v0"
        kinds += [[compare, f"s_and_{self.b} {self.exec}, {self.exec}, {self.vcc}"]]
        kinds += [[f"v_cmpx_gt_u32_e32 {'vcc, ' if self.major == 9 else ''}{rng.randrange(1, 65)}, v0"]]
        if callable_:
            name = rng.choice(callable_)
            kinds += [self.call(name)] * 2
        return rng.choice(kinds)

    def call(self, name: str) -> list[str]:
        pair = self.link(name)
        low, high = pair[2:-1].split(":")
        return [f"address {low}, {high}, {name}", f"s_swappc_b64 {pair}, {pair}"]

    def leave(self, label: str, targets: list[str], shared: list[str]) -> list[str]:
        rng = self.rng
        to = rng.choice(targets)
        test = f"s_bitcmp1_b32 s20, {rng.randrange(32)}"
        kind = rng.randrange(7)
        if kind == 0:
            return [f"s_branch {to}"]
        if kind in (1, 2):
            return [test, f"s_cbranch_scc{rng.randrange(2)} {to}"]
        if kind == 3 and shared:
            return [test, f"s_branch {rng.choice(shared)}"]
        if kind == 4:
            return [f"s_cbranch_exec{rng.choice(('z', 'nz'))} {to}"]
        if kind == 5:
            return [test, f"s_cbranch_scc1 {to}", f"s_branch {rng.choice(targets)}"]
        return []


def source(seed: int, target: str, wave_size: int | None = None, *, calls: bool, saturated: bool) -> str:
    writer = _Writer(seed, target, wave_size, calls=calls, saturated=saturated)
    return kernel_text(function("k", writer.program()), target, wave_size=wave_size, sgprs=102, vgprs=8)


@functools.cache
def random_kernel(
    seed: int, target: str, wave_size: int | None = None, *, calls: bool = False, saturated: bool = False
) -> CodeObject:
    """Return a code object with the kernel ``k``, which takes a buffer with a word for each lane."""
    text = source(seed, target, wave_size, calls=calls, saturated=saturated)
    return assembled(text, target, wave_size=wave_size)
