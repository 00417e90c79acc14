"""The effect of an instruction on a wave, by the documents: operands and modifiers around the pseudo-code of a lane."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
from isa_documents import text_of
from isa_lanes import Inputs, Result, Setting, environment, evaluate
from isa_language import Places
from isa_numbers import V, make
from isa_operands import (
    ABS,
    NEG,
    NEVER_FLUSHED,
    NEVER_SCALED,
    OP_SEL,
    OP_SEL_HI,
    SCC_UNIT,
    SEXT,
    Expected,
    Finish,
    Instruction,
    Operand,
    Unmodelled,
    dpp_source,
    float_width,
    flushed_source,
    is_half,
    is_packed,
    keeps_high,
    result_width,
    sdwa_result,
    sdwa_source,
    source_widths,
)
from isa_pseudocode import compile_text
from isa_state import EXEC, M0, VCC, State
from luthier.isa import Isa
from luthier.isa.instructions import InstructionFlag

ALL_DENORMALS = 0xF0
"""MODE in which none is flushed."""


class WaveRegisters(Places):
    """The VGPRs of all lanes; reads see what was before unless the same instruction wrote it."""

    def __init__(self, before: Any, after: Any) -> None:
        self.before, self.after = before, after

    def get(self, indices: tuple[int, ...], low: int, width: int) -> int:
        return int(self.after[indices[1], indices[0]]) >> low

    def put(self, indices: tuple[int, ...], low: int, width: int, value: V) -> None:
        old = int(self.after[indices[1], indices[0]])
        mask = ((1 << width) - 1) << low
        self.after[indices[1], indices[0]] = old & ~mask & 0xFFFFFFFF | value.bits << low & mask


class Machine:
    """One processor."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.lanes = isa.wave_size
        self.major = isa.target.target.major
        self.processor = isa.target.target.name

    # Registers

    def bank(self, state: State, operand: Operand) -> Any:
        return state.agprs if operand.kind == "a" else state.vgprs

    def read(self, state: State, operand: Operand, lane: int, width: int = 0) -> int:
        if operand.kind == "imm":
            return operand.index & ((1 << (width or 64)) - 1)
        if operand.kind == "none":
            return 0
        if operand.kind == "s":
            if operand.index == SCC_UNIT:
                return state.scc
            value = state.wide(operand.index, operand.count)
        else:
            bank = self.bank(state, operand)
            value = 0
            for part in range(operand.count):
                value |= int(bank[operand.index + part, lane]) << (32 * part)
        if operand.high is not None:
            value = value >> 16 if operand.high else value & 0xFFFF
        return value

    def write(self, after: Expected, operand: Operand, lane: int, bits: int, mask: int, loose: Any = ()) -> None:
        """The masked bits into a VGPR or AGPR."""
        bank = self.bank(after.state, operand)
        for part in range((mask.bit_length() + 31) // 32):
            keep = mask >> (32 * part) & 0xFFFFFFFF
            old = int(bank[operand.index + part, lane])
            bank[operand.index + part, lane] = (old & ~keep & 0xFFFFFFFF) | (bits >> (32 * part) & keep)
        for low, width in loose:
            if width < 0:  # only the sign is open
                sign = low - width - 1
                after.loose.append((operand.kind, operand.index + sign // 32, lane, sign % 32, 0))
            for part in range(max(1, width // 32) if width > 0 else 0):
                after.loose.append((operand.kind, operand.index + low // 32 + part, lane, low % 32, width))

    def mask_bits(self, value: int) -> int:
        return value & ((1 << self.lanes) - 1)

    def put_mask(self, state: State, unit: int, value: int) -> None:
        state.put_wide(unit, self.lanes // 32, value)

    # Sources

    def source(
        self, state: State, ins: Instruction, number: int, lane: int, text: str, packed: bool
    ) -> tuple[int, int]:
        """Bits and width of source `number` in a lane, modifiers applied."""
        operand = ins.operands.get(f"src{number}")
        if operand is None:
            return 0, 32
        if operand.high is not None and "VGPR[laneId][SRC0.u32]" in text:
            operand = replace(operand, high=None)  # the text itself selects
        modifiers = ins.modifiers(number)
        form = float_width(text, number)
        mode = ALL_DENORMALS if NEVER_FLUSHED.fullmatch(ins.name) else state.mode
        half = is_half(text, number)
        width = 16 if half else max(32, 32 * operand.count)
        if operand.kind == "imm":
            width = 16 if half else 64 if source_widths(text, number) & {64} else 32
        value = self.read(state, operand, lane, width)
        if "src0_sel" in ins.values and number < 2:
            value = sdwa_source(value, ins.values.get(f"src{number}_sel", 6), bool(modifiers & SEXT))
        elif packed:
            return self.packed_source(value, operand, modifiers, form, width, mode), max(width, 32)
        elif half and operand.high is None and operand.kind != "imm" and modifiers & OP_SEL:
            value >>= 16
        value &= (1 << width) - 1
        if form is not None and form[0] == "f":
            value = flushed_source(value, form[1], mode, width)
        if form is not None and modifiers & (NEG | ABS):
            sign = 1 << (form[1] - 1)
            if modifiers & ABS:
                value &= ~sign
            if modifiers & NEG:
                value ^= sign
        return value, width

    def packed_source(self, value: int, operand: Operand, modifiers: int, form: Any, width: int, mode: int) -> int:
        size = width // 2 if operand.count == 2 else 16
        halves = [value & ((1 << size) - 1), value >> size & ((1 << size) - 1)]
        if form is not None and form[0] == "f":
            halves = [flushed_source(half, size, mode) for half in halves]
        low = halves[bool(modifiers & OP_SEL)]
        high = halves[bool(modifiers & OP_SEL_HI)]
        if form is not None:
            low ^= (modifiers & NEG and 1) << (size - 1)
            high ^= (modifiers & ABS and 1) << (size - 1)
        return low | high << size

    # Vector operations lane by lane

    def setting(self, ins: Instruction, text: str, state: State) -> Setting:
        opsel = sum(bool(ins.modifiers(i) & OP_SEL) << i for i in range(3))
        opsel_hi = sum(bool(ins.modifiers(i) & OP_SEL_HI) << i for i in range(3))
        if "src0_modifiers" in ins.values and not ins.opcode.flags & InstructionFlag.PACKED:
            opsel |= bool(ins.modifiers(0) & OP_SEL_HI) << 3
        if "op_sel" in ins.values and "src0_modifiers" not in ins.values:
            opsel = ins.values["op_sel"]
        first = ins.operands.get("src0")
        if first is not None and first.high and "VGPR[laneId][SRC0.u32]" in text:
            opsel |= 1
        if "byte_sel" in ins.values:
            byte = ins.values["byte_sel"]
            # Bit 1 of OPSEL is the high bit where the text says 2 for byte 1: the two bits are swapped.
            opsel = byte >> 1 | (byte & 1) << 1
            if "OPSEL[3 : 2]" in text:
                opsel = byte << 2
        return Setting(
            ins.name,
            self.major,
            text,
            wave64=self.lanes == 64,
            opsel=opsel,
            opsel_hi=opsel_hi,
            neg=sum(bool(ins.modifiers(i) & NEG) << i for i in range(3)),
            simm16=ins.values.get("imm", 0) & 0xFFFF,
            simm32=ins.values.get("imm", 0) & 0xFFFFFFFF,
            round32=state.mode & 3,
            round16=state.mode >> 2 & 3,
            denorm=state.mode >> 4 & 15,
            ieee=bool(state.mode >> 9 & 1) and self.major < 12,
            fnuz=self.processor == "gfx942",
            bitop3=ins.values.get("bitop3", 0),
            sdwa_select=0,
        )

    def lane_operation(self, before: State, ins: Instruction, text: str) -> Expected:
        after = Expected(before.copy())
        setting = self.setting(ins, text, before)
        packed = bool(ins.opcode.flags & InstructionFlag.PACKED) and is_packed(text) and "op_sel_hi" in ins.values
        exec_bits = self.mask_bits(before.wide(EXEC, 2))
        enabled, origin = self.dpp(ins, exec_bits)
        vcc_in, vcc_out = self.masks(ins, before)
        result = ins.operands.get("vdst")
        if result is not None and result.kind == "none":
            result = None
        compare = ins.name.startswith("v_cmp")
        mask_out: dict[str, int] = {}
        scalar = result is not None and result.kind == "s"  # GFX12's v_s_…: whatever EXEC
        for lane in range(self.lanes):
            if lane > 0 if scalar else not enabled >> lane & 1:
                continue
            sources = []
            for number in range(3):
                at = origin[lane] if number == 0 else lane
                if f"src{number}" not in ins.operands:
                    continue
                if at is None:
                    zeroed = State(np.zeros_like(before.vgprs), before.agprs, before.sgprs, 0, before.mode)
                    sources.append(self.source(zeroed, ins, number, lane, text, packed))
                else:
                    sources.append(self.source(before, ins, number, at, text, packed))
            old = (0, 64)
            if result is not None and result.kind in ("v", "a"):
                width = 16 if result.high is not None else 32 * result.count
                reads_old = re.search(r"(?<!^)\bD0(\.|\[)", text) is not None
                old = (self.read(before, result, lane) if reads_old else 0, width)
                if reads_old:
                    old = self.old_float(ins, text, old, before.mode)
            inputs = Inputs(
                tuple(sources),
                old,
                vcc_in >> lane & 1,
                lane=lane if "laneId" in text else 0,
                exec=exec_bits if "EXEC" in text and not compare else 0,
            )
            if "laneId" in text and not re.search(r"laneId\.u32|<< laneId", text):
                inputs = inputs._replace(lane=0)
            results = evaluate(setting, inputs)
            self.store_lane(after, before, ins, lane, results, result, compare, mask_out, inputs.lane)
        self.store_masks(after, ins, mask_out, vcc_out, compare, exec_bits)
        return after

    def old_float(self, ins: Instruction, text: str, old: tuple[int, int], mode: int) -> tuple[int, int]:
        """What the result's register held, as a float source."""
        form = float_width(text.replace("D0", "S9"), 9)
        if form is None or form[0] != "f" or NEVER_FLUSHED.fullmatch(ins.name):
            return old
        return flushed_source(old[0], form[1], mode, max(old[1], form[1])), old[1]

    def masks(self, ins: Instruction, before: State) -> tuple[int, str]:
        """The mask that stands for VCC as a source, and the operand that does as a result."""
        third = ins.operands.get("src2")
        if third is not None and third.kind == "s" and re.search("cndmask|addc|subb|_co_ci_", ins.name):
            return before.wide(third.index, self.lanes // 32), "sdst"
        return before.wide(VCC, self.lanes // 32), "sdst"

    def store_lane(
        self,
        after: Expected,
        before: State,
        ins: Instruction,
        lane: int,
        results: dict[str, Result],
        result: Operand | None,
        compare: bool,
        mask_out: dict[str, int],
        seen_as: int,
    ) -> None:
        for name in ("VCC", "EXEC"):
            if name in results and (name == "VCC" or compare):
                mask_out[name] = mask_out.get(name, 0) | (results[name].bits >> seen_as & 1) << lane
        value = results["D0"]
        if compare:
            if value.written:
                mask_out["D0"] = mask_out.get("D0", 0) | (value.bits >> seen_as & 1) << lane
            return
        if results.get("D1") is not None:
            mask_out["VCC"] = mask_out.get("VCC", 0) | (results["D1"].bits & 1) << lane
        if "S0" in results and "swap" in ins.name:
            source = ins.operands["src0"]
            shift = 16 if source.high else 0
            self.write(after, source, lane, results["S0"].bits << shift, results["S0"].written << shift)
        if result is not None:
            self.store_vector(after, before, ins, lane, value, result)

    def store_vector(
        self, after: Expected, before: State, ins: Instruction, lane: int, value: Result, result: Operand
    ) -> None:
        bits, mask, loose = value.bits & value.written, value.written, value.loose
        if result.kind == "s" and mask:
            if ins.name.endswith(("f16", "f32")):
                width = int(ins.name[-2:])
                bits, loose = self.finish(ins, before.mode).result(bits, (1 << width) - 1, width, loose)
            after.state.sgprs[result.index] = bits
            after.loose += [("s", result.index, 0, low, width) for low, width in loose]
            return
        if not mask:
            return
        if width := result_width(ins.name, ins.text_of_code):
            bits, loose = self.finish(ins, before.mode).result(bits, mask, width, loose)
        if "dst_sel" in ins.values and mask <= 0xFFFFFFFF:
            old = self.read(before, result, lane)
            bits = sdwa_result(bits & mask, ins.values["dst_sel"], ins.values["dst_unused"], old)
            low = {0: 0, 1: 8, 2: 16, 3: 24, 4: 0, 5: 16, 6: 0}[ins.values["dst_sel"]]
            size = 8 if ins.values["dst_sel"] < 4 else 16 if ins.values["dst_sel"] < 6 else 32
            moved = tuple((at + low, width) for at, width in loose if at + abs(width) <= size)
            if loose and (not moved or ins.values["dst_unused"] == 1):
                moved = ((0, 1),)
            self.write(after, result, lane, bits, 0xFFFFFFFF, moved)
            return
        if mask == 0xFFFF and result.count == 1:
            high = result.high
            if high is None and not ins.opcode.flags & InstructionFlag.PACKED and ins.modifiers(0) & OP_SEL_HI:
                high = True
            shift = 16 if high else 0
            mask <<= shift
            loose = tuple((low + shift, width) for low, width in loose)
            bits <<= shift
            if self.major == 9 and not high and not keeps_high(ins):
                mask = 0xFFFFFFFF
        self.write(after, result, lane, bits, mask, loose)

    def finish(self, ins: Instruction, mode: int) -> Finish:
        several = bool(ins.opcode.flags & InstructionFlag.PACKED) or "_pk_" in ins.name  # not one float
        omod = 0 if several or ins.name in NEVER_SCALED else ins.values.get("omod", 0)
        flushes = not NEVER_FLUSHED.fullmatch(ins.name)
        return Finish(mode, self.major, flushes, omod, bool(ins.values.get("clamp")))

    def store_masks(
        self, after: Expected, ins: Instruction, mask_out: dict[str, int], vcc_out: str, compare: bool, exec_bits: int
    ) -> None:
        operand = ins.operands.get("sdst")
        if operand is None:
            operand = ins.operands.get("vdst1")
        unit = operand.index if operand is not None and operand.kind == "s" else VCC
        drop = operand is not None and operand.kind == "none"
        if compare and "cmpx" in ins.name:
            self.put_mask(after.state, EXEC, mask_out.get("EXEC", 0))
        if compare and ("cmpx" not in ins.name or self.major == 9) and not drop:
            self.put_mask(after.state, unit, mask_out.get("D0", 0))
        writes = {"VCC", "D1"} & set(mask_out) or re.search(r"VCC(\.u64\[laneId\])? = |\bD1\b", ins.text_of_code)
        if not compare and writes and not drop:
            self.put_mask(after.state, unit, mask_out.get("VCC", 0))

    # DPP

    def dpp(self, ins: Instruction, exec_bits: int) -> tuple[int, list[int | None]]:
        """Lanes that are written, and the lane each takes source 0 from (None: it reads 0)."""
        lanes = self.lanes
        if "dpp8" in ins.values:
            select = ins.values["dpp8"]
            origin = [lane & ~7 | select >> 3 * (lane & 7) & 7 for lane in range(lanes)]
            fetch = ins.values.get("fi", 0) == 0xEA
            zero = [o if fetch or exec_bits >> o & 1 else None for o in origin]
            return exec_bits, list(zero)
        if "dpp_ctrl" not in ins.values:
            return exec_bits, list(range(lanes))
        control = ins.values["dpp_ctrl"]
        bound, fetch = bool(ins.values.get("bound_ctrl", 0)), bool(ins.values.get("fi", 0))
        enabled = exec_bits
        sources: list[int | None] = []
        for lane in range(lanes):
            source = dpp_source(control, lane, lanes)
            if source is not None and not fetch and not exec_bits >> source & 1:
                source = None
            if source is None and not bound:
                enabled &= ~(1 << lane)
            sources.append(source)
            if not ins.values["row_mask"] >> lane // 16 & 1 or not ins.values["bank_mask"] >> lane % 16 // 4 & 1:
                enabled &= ~(1 << lane)
        return enabled, sources

    # Operations of the whole wave

    def wave_operation(self, before: State, ins: Instruction, text: str) -> Expected:
        """Texts that name VGPR[lane][register] themselves."""
        after = Expected(before.copy())
        exec_bits = self.mask_bits(before.wide(EXEC, 2))
        each_lane = "laneId" in text
        result = ins.operands.get("vdst") or ins.operands["sdst"]
        lanes = [lane for lane in range(self.lanes) if exec_bits >> lane & 1] if each_lane else [0]
        for lane in lanes:
            sources = [self.source(before, ins, number, lane, text, False) for number in range(3)]
            setting = self.setting(ins, text, before)
            inputs = Inputs(
                tuple(sources), (0, 32), 0, before.scc, exec_bits, lane, m0=int(before.sgprs[M0]) & 0xFFFFFFFF
            )
            env = environment(setting, inputs)
            place = WaveRegisters(before.vgprs, after.state.vgprs)
            env.places["VGPR"] = place
            for name, operand in (("SRC0", "src0"), ("SRC1", "src1"), ("VDST", "vdst"), ("DST", "vdst")):
                if operand in ins.operands:
                    env.constants[name] = make(ins.operands[operand].index, "u", 32)
            compile_text(text)(env)
            cell = env.cells["D0"]
            if cell.written:
                if result.kind == "s":
                    after.state.sgprs[result.index] = cell.bits
                else:
                    self.write(after, result, lane, cell.bits, cell.written)
        return after

    # Scalar operations

    def expected(self, before: State, ins: Instruction) -> Expected:
        """The wave after the instruction.

        Raises:
            Unmodelled: a form without a rule here.
            Unreadable: its text is none.
        """
        text = ins.text_of_code
        if ins.opcode.flags & InstructionFlag.SALU:
            return self.scalar(before, ins, text)
        if ins.opcode.name.startswith("V_DUAL_"):
            return self.dual(before, ins)
        if "VGPR[" in text and not re.search(r"VGPR\[laneId\]\[(SRC0|VDST)\.u32\]\[", text):
            return self.wave_operation(before, ins, text)
        return self.lane_operation(before, ins, text)

    def dual(self, before: State, ins: Instruction) -> Expected:
        """Both halves of a dual operation; they read before either writes."""
        after = Expected(before.copy())
        for half, suffix in zip(ins.text.split("::"), "XY", strict=True):
            name = half.split()[0].replace("v_dual_", "v_")
            text = text_of(name, self.major)
            if text is None:
                raise Unmodelled(name)
            operands = {}
            for key, operand in ins.operands.items():
                if key.endswith(suffix):
                    operands[key[:-1].replace("vsrc", "src")] = operand
            constants = [ins.values[key] for key in (f"imm{suffix}", "imm", "immDeferred") if key in ins.values]
            values = {"imm": constants[0]} if constants else {}
            if name == "v_bitop2_b32":
                values["bitop3"] = ins.values["bitop3"]
            single = replace(ins, name=name, operands=operands, values=values, text_of_code=text)
            done = self.lane_operation(before, single, text)
            result = operands["vdst"]
            for index in range(result.index, result.index + result.count):
                after.state.vgprs[index] = done.state.vgprs[index]
            after.loose += done.loose
        return after

    def jump(self, before: State, ins: Instruction, pc: int) -> tuple[Expected, int]:
        """A branch or jump at address `pc`: the state, and where it goes on."""
        after = Expected(before.copy())
        operands = ins.operands
        result = operands.get("sdst")
        source = operands.get("src0")
        immediate = next((value for name, value in ins.values.items() if name in ("simm16", "target", "imm")), 0)
        setting = self.setting(ins, ins.text_of_code, before)._replace(simm16=immediate & 0xFFFF)
        inputs = Inputs(
            ((self.read(before, source, 0), 64),) if source is not None else (),
            *((0, 64), 0, before.scc, before.wide(EXEC, 2), 0, 0, pc),
        )
        env = environment(setting, inputs)
        env.constants["VCCZ"] = make(self.mask_bits(before.wide(VCC, 2)) == 0, "u", 1)
        env.constants["EXECZ"] = make(self.mask_bits(before.wide(EXEC, 2)) == 0, "u", 1)
        compile_text(ins.text_of_code)(env)
        if result is not None and env.cells["D0"].written:
            after.state.put_wide(result.index, 2, env.cells["D0"].bits)
        cell = env.cells["PC"]
        return after, cell.bits if cell.written else pc + 4

    def scalar(self, before: State, ins: Instruction, text: str, pc: int = 0) -> Expected:
        after = Expected(before.copy())
        state = after.state
        operands = ins.operands
        result = operands.get("sdst")
        immediate = ins.values.get("simm16", ins.values.get("imm", 0))
        sources: list[tuple[int, int]] = []
        for name in ("src0", "src1"):
            if name in operands:
                width = max([32, *source_widths(text, len(sources))])
                form = float_width(text, len(sources))
                value = self.read(before, operands[name], 0, width)
                if form is not None and form[0] == "f":
                    value = flushed_source(value, form[1], before.mode, width)
                sources.append((value, width))
        if "simm16" in ins.values and "SIMM16" not in text:
            # CDNA's SOPK: the immediate is the first source that is no register.
            own = operands.get("sdst") or operands.get("src0")
            sources = [(immediate & 0xFFFF, 16)]
            if "D0" not in text and own is not None:
                sources.insert(0, (self.read(before, own, 0), 32))
        elif not sources and result is not None and re.search(r"\bS0\b", text):
            sources = [(self.read(before, result, 0), 32)]
        setting = Setting(
            *(ins.name, self.major, text, self.lanes == 64),
            simm16=immediate & 0xFFFF,
            simm32=ins.values.get("imm", 0) & 0xFFFFFFFF,
            round32=before.mode & 3,
            round16=before.mode >> 2 & 3,
            denorm=before.mode >> 4 & 15,
            ieee=bool(before.mode >> 9 & 1) and self.major < 12,
        )
        old = (
            (self.read(before, result, 0), 32 * result.count) if result is not None and result.kind == "s" else (0, 64)
        )
        if re.search(r"(?<!^)\bD0\.f", text):  # s_fmac_f32 reads it, too
            old = self.old_float(ins, text, old, before.mode)
        inputs = Inputs(
            tuple(sources), old, before.wide(VCC, 2), before.scc, before.wide(EXEC, 2), 0, int(before.sgprs[M0]), pc
        )
        if "SGPR[" in text:
            env = environment(setting, inputs)
            env.places["SGPR"] = ScalarRegisters(state)
            for name, operand in (("SRC0", "src0"), ("DST", "sdst")):
                env.constants[name] = make(operands[operand].index, "u", 32)
            compile_text(text)(env)
            if result is not None and env.cells["D0"].written:
                state.put_wide(result.index, result.count, env.cells["D0"].bits)
            return after
        results = evaluate(setting, inputs)
        written = results["D0"]
        if written.written and result is not None and result.kind == "s":
            bits = written.bits & written.written
            if size := result_width(ins.name, text):
                bits, _ = Finish(before.mode, self.major).result(bits, written.written, size, ())
            value = (old[0] & ~written.written) | bits
            if written.written == 0xFFFF:
                value &= 0xFFFF  # SGPRs are written whole
            state.put_wide(result.index, result.count, value)
            for low, width in written.loose:
                after.loose.append(("s", result.index + low // 32, 0, low % 32, width))
        if "SCC" in results:
            state.scc = results["SCC"].bits & 1
        if "M0" in results:
            state.sgprs[M0] = results["M0"].bits
        if ins.name in ("s_set_gpr_idx_on", "s_set_gpr_idx_off"):
            state.mode = state.mode & ~(1 << 27) | (ins.name == "s_set_gpr_idx_on") << 27
        if "EXEC" in results:
            bits = results["EXEC"].bits
            width = 2 if ins.name.endswith("64") else 1
            state.put_wide(EXEC, width, bits)
        return after


class ScalarRegisters(Places):
    """SGPR[index]."""

    def __init__(self, state: State) -> None:
        self.state = state

    def get(self, indices: tuple[int, ...], low: int, width: int) -> int:
        return self.state.wide(indices[0], width // 32) >> low

    def put(self, indices: tuple[int, ...], low: int, width: int, value: V) -> None:
        self.state.put_wide(indices[0], width // 32, value.bits)
