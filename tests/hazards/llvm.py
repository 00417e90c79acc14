"""LLVM's own hazard recognizer: instructions go in as MIR and come out as assembly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from luthier.isa import InstructionArray, Isa
from luthier.support.processes import run


def machine_ir(isa: Isa, code: InstructionArray) -> list[str]:
    """Each instruction as MIR of LLVM's generic opcode."""
    lines = []
    for index in range(len(code)):
        real = isa.opcode(int(code.opcode[index]))
        pseudo = isa.opcode(real.pseudo_number)
        values = {
            operand.name: (kind, value)
            for operand, (kind, value) in zip(real.operands, code.operands(index), strict=True)
        }
        defs, uses = [], []
        for operand in pseudo.operands:
            if operand.name not in values:
                uses.append("0")
                continue
            kind, value = values[operand.name]
            if kind == 1:
                name = isa.register(value).name.lower() if value else "noreg"
                text = f"${name.removesuffix('_gfxpre11').removesuffix('_gfx11plus').removesuffix('_vi')}"
            else:
                text = str(value)
            (defs if operand.is_def else uses).append(text)
        implicit = [f"implicit-def ${_implicit(isa, number)}" for number in pseudo.implicit_defs]
        implicit += [f"implicit ${_implicit(isa, number)}" for number in pseudo.implicit_uses]
        head = f"{', '.join(defs)} = " if defs else ""
        lines.append(f"{head}{pseudo.name} {', '.join([*uses, *implicit])}")
    return lines


def _implicit(isa: Isa, number: int) -> str:
    return isa.register(number).name.lower().replace("exec_lo", "exec").replace("vcc_lo", "vcc")


def through_llvm(isa: Isa, bodies: Sequence[str]) -> list[list[str]]:
    """Bodies of functions as LLVM gives them back, with what it inserts; an instruction a line, without the return."""
    functions = []
    for number, body in enumerate(bodies):
        code = isa.assemble(body.replace(";", "\n")).instructions
        lines = "\n".join(f"    {line}" for line in machine_ir(isa, code))
        functions.append(f"---\nname: f{number}\nbody: |\n  bb.0:\n{lines}\n    S_ENDPGM 0\n...\n")
    wave = ["-mattr=+wavefrontsize64"] if len(isa.target.target.wave_sizes) > 1 and isa.wave_size == 64 else []
    command = ["llc-22", "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={isa.target.target.name}", *wave, "-x", "mir"]
    text = run([*command, "-start-before=post-RA-hazard-rec", "-o", "-", "-"], stdin="".join(functions))
    bodies_after: list[list[str]] = []
    for line in text.splitlines():
        entry = line.split(";")[0].strip()
        if entry.startswith("f") and entry.endswith(":"):
            bodies_after.append([])
        elif bodies_after and line.startswith("\t") and not entry.startswith(".") and entry and entry != "s_endpgm":
            bodies_after[-1].append(entry)
    assert len(bodies_after) == len(bodies)
    return bodies_after


def states(isa: Isa, code: InstructionArray) -> list[int]:
    """[n] wait states of ``s_nop``, 0 of others."""
    return [
        int(code.operand_value[code.operand_start[index]]) + 1
        if isa.opcode(int(code.opcode[index])).pseudo == "S_NOP"
        else 0
        for index in range(len(code))
    ]


__all__ = ["machine_ir", "np", "states", "through_llvm"]
