"""Writes thread traces (SQTT): the token that each instruction leaves, and streams of tokens.

The hardware's class of an instruction is from names in AMD's rocprof-trace-decoder, and from the thread traces that
`benchmarks/hardware/thread_traces.py` compares. Which instructions have it is known for what these contain.
"""

from __future__ import annotations

import re
from functools import lru_cache

from luthier.errors import LuthierError
from luthier.isa import TargetId
from luthier.report.sqtt import FORMATS, IMMEDIATE, VALU, WORDS, code_kinds, token_kinds

_BRANCH = re.compile(r"s_(c?branch|cbranch_\w+)\b")
_SIZES = (
    (re.compile(r"(b|u|i|f)128|x4"), 4),
    (re.compile(r"(b|u|i|f)96|x3"), 3),
    (re.compile(r"(b|u|i|f)64|x2"), 2),
)
_INITIATOR, _PROGRAM_LOW, _PROGRAM_HIGH = 0x0, 0xC, 0xD
"""COMPUTE_DISPATCH_INITIATOR, COMPUTE_PGM_LO and COMPUTE_PGM_HI in tokens."""
Code = int | dict[int | str, int] | None
_WORDS: tuple[tuple[str, Code], ...] = (
    (r"s_(waitcnt|nop|sleep|barrier|setprio|sethalt|icache_inv|set_gpr_idx_(off|mode))", IMMEDIATE),
    (r"s_(endpgm|sendmsg|ttracedata)", 15),
    (r"s_(setpc|swappc|call)", 7),
    (r"s_(buffer_|scratch_)?(store|atomic)|s_dcache_wb", 16),
    (r"s_(buffer_|scratch_)?load|s_dcache_inv|s_mem(real)?time", 0),
    (r"s_", {"narrow": 1, "wide": 17}),
    (r"ds_", 6),
    (r"(global|flat|scratch)_load", 14),
    (r"(global|flat|scratch)_", 4),
    (r"(t?buffer|image)_load", 2),
    (r"(t?buffer|image)_", 3),
    (r"v_(mfma|smfmac|accvgpr)", 28),
    (r"v_", {"narrow": 5, "wide": 18}),
)
_RDNA: tuple[tuple[str, Code], ...] = (
    (r"s_(delay_alu|wait_alu|barrier_wait|code_end|endpgm)", None),
    (r"s_(wait|nop|clause|sleep|setprio|set_inst|sethalt)", IMMEDIATE),
    (r"s_barrier_(signal|init)", 122),
    (r"s_barrier_(join|leave)", 138),
    (r"s_barrier", 19),
    (r"s_(setpc|swappc|call)", 5),
    (r"s_(sendmsg|ttracedata)", 9),
    (r"s_(buffer_)?(load|prefetch)|s_dcache|s_gl1|s_mem(real)?time", 1),
    (r"s_\w*saveexec", {2: 0, "other": 114}),
    (r"s_mul_", {4: 155, "other": 0}),
    (r"s_\w+_f(16|32)\b", {4: 152, "other": 0}),
    (r"s_", 0),
    (r"ds_(append|consume|store_addtid)", 42),
    (r"ds_(load|read|swizzle|b?permute)", 41),
    (r"ds_(param|direct)_load|lds_", 110),
    (r"ds_", {"other": 43, "sized": 1}),
    (r"flat_load", {2: 30, "other": 28}),
    (r"flat_", {2: 31, "other": 29, "sized": 1}),
    (r"(global|scratch)_load.*\boff\b", {2: 35, "other": 34}),
    (r"(global|scratch)_load", {2: 35, "other": 33}),
    (r"(global|scratch)_.*\boff\b", {2: 36, "other": 37, "sized": 1}),
    (r"(global|scratch)_", {"other": 36, "sized": 1}),
    (r"t?buffer_load", 47),
    (r"t?buffer_", {"other": 50, "sized": 1}),
    (r"image_(bvh|msaa_load_bvh)", 103),
    (r"image_(sample|gather)", 55),
    (r"image_load", 68),
    (r"image_", 72),
    (r"exp(ort)?\b", 21),
    (r"v_s_", 153),
    (r"v_cmpx", {3: 115, "other": VALU}),
    (r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_(f16|f32|bf16)", 11),
    (r"v_(lsh[lr]|ashr)rev_[biu]64", 13),
    (r"v_mad_(co_)?[iu]64", 14),
    (r"v_wmma_\w+(f16|bf16)$", {4: 141, "other": VALU}),
    (r"v_wmma", {4: 140, "other": VALU}),
    (r"v_\w+_f64", {4: 146, "other": 15}),
    (r"v_interp", 18),
    (r"v_", VALU),
)


def layout_of(target: str) -> int:
    """Return the format of a target's thread traces: the version in their header, or `WORDS`.

    Raises:
        LuthierError: traces of the target are not known.
    """
    layout = TargetId.parse(target).target.thread_trace_version
    if layout not in FORMATS:
        raise LuthierError(f"thread traces of {target} are not known; those of GFX9 to GFX12.0 are")
    return layout


@lru_cache(maxsize=1 << 14)
def instruction_code(text: str, layout: int, size: int = 4, taken: bool = False) -> int | None:
    """Return the hardware's class of an instruction, or None if it leaves no token.

    Args:
        text: the instruction in LLVM's syntax.
        layout: a format, such as 3.
        size: bytes of the instruction, which GFX9's classes depend on.
        taken: of a branch.

    Raises:
        LuthierError: the class is not known.
    """
    mnemonic = text.split(None, 1)[0]
    if _BRANCH.match(mnemonic):
        kind = "taken" if taken else "not taken"
        return next(code for code, name in code_kinds(layout).items() if name == kind)
    for pattern, code in _WORDS if layout == WORDS else _RDNA:
        if re.match(pattern, text if "off" in pattern else mnemonic):
            if isinstance(code, dict) and layout == WORDS:
                code = code["wide" if size > 4 else "narrow"]
            elif isinstance(code, dict):
                dwords = next((count for size_pattern, count in _SIZES if size_pattern.search(mnemonic)), 1)
                code = code.get(layout, code["other"]) + (dwords - 1) * code.get("sized", 0)
            if code is None or code in code_kinds(layout):
                return code
            break
    raise LuthierError(f"the class of {mnemonic} in thread traces of format {layout} is not known")


class TraceWriter:
    """Writes the tokens of one shader engine.

    Args:
        target: a target, such as "gfx1100".

    Raises:
        LuthierError: traces of the target are not written.
    """

    def __init__(self, target: str) -> None:
        self.layout = layout_of(target)
        self.time = 0
        self._data = bytearray()
        self._rest = 0
        """The last half byte, and how many bits it has."""
        self._rest_bits = 0
        self._taken = 0
        """Bytes that `take` has returned."""
        self._kinds = token_kinds(self.layout)
        if self.layout == WORDS:
            prefix = TargetId.parse(target).target.thread_trace_prefix
            self._put(0x11 | prefix << 13 | 0xF << 16, 64)
        else:
            self.add("HEADER", 0, version=self.layout)

    def add(self, name: str, time: int, **fields: int) -> None:
        """Add a token.

        Args:
            time: not before the last one's; a multiple of four on GFX9.

        Raises:
            ValueError: a field or a time does not fit.
        """
        kind, gap = self._kinds[name], time - self.time
        if gap < 0 or (self.layout == WORDS and gap % 4):
            raise ValueError(f"a token at {time} cannot follow one at {self.time}")
        unit = 4 if self.layout == WORDS else 1
        fits = gap // unit < 1 << kind.time[1]
        self.time = time
        if not fits:
            self._wait(gap)
        value = kind.pattern | ((gap // unit if fits else 0) << kind.time[0])
        for field, content in fields.items():
            first, count = kind.fields[field]
            if not 0 <= content < 1 << count:
                raise ValueError(f"{name}: {field} has {count} bits, which do not hold {content}")
            value |= content << first
        self._put(value, kind.bits)

    def _wait(self, cycles: int) -> None:
        if self.layout == WORDS:
            while cycles:
                step = min(cycles, 4 * 255)
                self._put(step << 2, 16)
                cycles -= step
        elif 4 <= cycles < 20:
            self._put(self._kinds["TIME"].pattern | (cycles - 4) << 4, 8)
        else:
            kind = self._kinds["TIMESTAMP"]
            value = kind.pattern | cycles << kind.fields["cycles"][0]
            if "type" in kind.fields:
                value |= 1 << kind.fields["type"][0]
            self._put(value, kind.bits)

    def _put(self, value: int, bits: int) -> None:
        value, bits = self._rest | value << self._rest_bits, bits + self._rest_bits
        whole = bits // 8
        self._data += (value & ((1 << 8 * whole) - 1)).to_bytes(whole, "little")
        self._rest, self._rest_bits = value >> 8 * whole, bits % 8

    def instruction(self, code: int, time: int, slot: int) -> None:
        """Add the tokens of an instruction of a wave on SIMD 0 of the first compute unit."""
        if self.layout == WORDS:
            self.add("ISSUE", time, waves=(3 if code == IMMEDIATE else 2) << 2 * slot)
            if code != IMMEDIATE:
                self.add("INST", time + 4, wave=slot, code=code)
        elif code == IMMEDIATE:
            self.add("IMMEDIATE_ONE", time, wave=slot)
        elif code == VALU:
            self.add("VALU", time, wave=slot)
        else:
            self.add("INST", time, wave=slot, code=code)

    def program(self, address: int) -> None:
        """Say that a kernel at an address, a multiple of 256, is launched: what its waves execute from then on."""
        for register, part in ((_PROGRAM_LOW, address >> 8 & 0xFFFFFFFF), (_PROGRAM_HIGH, address >> 40)):
            if self.layout == WORDS:
                self.add("REG_CS_PRIVATE", self.time, address=register, data=part)
            else:
                self.add("REG", self.time, compute=1, address=register, data=part)
        if self.layout == WORDS:
            self.add("REG_CS_PRIVATE", self.time, address=_INITIATOR, data=1)
        else:
            self.add("REG_INIT", self.time, type=2, data=1)

    def take(self) -> bytes:
        """Return and forget what is complete, so that a long trace needs no memory."""
        taken, self._data = bytes(self._data), bytearray()
        self._taken += len(taken)
        return taken

    def data(self) -> bytes:
        """Return what was not taken, with zeros up to a multiple of 32 bytes."""
        trace = bytes(self._data) + (bytes([self._rest]) if self._rest_bits else b"")
        return trace + bytes(-(self._taken + len(trace)) % 32)
