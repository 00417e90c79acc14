"""Writes thread traces (SQTT): the tokens that a GPU's hardware would leave of the same instructions.

Times are not measured: each wave runs after the one before, an instruction a cycle (four on GFX9), on one SIMD.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from luthier.report.sqtt import IMMEDIATE, WORDS, code_kinds
from luthier.report.sqtt_writer import TraceWriter, instruction_code

from luthier_isa_trace.export import new_folder, writing
from luthier_isa_trace.reading import InstructionTrace, TracedWave

_SLOTS = {WORDS: 10}
_RDNA_SLOTS = 16


def write_thread_traces(trace: InstructionTrace, folder: Path) -> int:
    """Write a thread trace for each launch, ``kernel-N.att``, to a new folder; return the number of launches.

    Raises:
        LuthierError: the folder exists, the disk is full, the trace is damaged, or thread traces of its target are not
            known.
    """
    new_folder(folder)
    writers: dict[tuple[int, int, int, int], tuple[TraceWriter, Path]] = {}
    with writing(folder):
        for wave in trace.waves():
            key = (wave.process, wave.device, wave.kernel.number, wave.launch)
            if key not in writers:
                writers[key] = (TraceWriter(wave.kernel.target), folder / f"kernel-{len(writers) + 1}.att")
                if len(wave.instructions):
                    writers[key][0].program(int(wave.kernel.pc[wave.instructions[0]]))
            writer, path = writers[key]
            write_wave(wave, writer)
            with path.open("ab") as file:
                file.write(writer.take())
        for writer, path in writers.values():
            with path.open("ab") as file:
                file.write(writer.data())
    return len(writers)


def write_wave(wave: TracedWave, writer: TraceWriter) -> None:
    """Write a wave's tokens; a jump to a computed address is followed by the address."""
    step = 4 if writer.layout == WORDS else 1
    slot = wave.number % _SLOTS.get(writer.layout, _RDNA_SLOTS)
    kinds, time = code_kinds(writer.layout), writer.time + step
    writer.add("WAVE_START", time, wave=slot)
    pc, text = wave.kernel.pc, wave.kernel.text
    sizes = np.diff(pc, append=pc[-1:] + np.uint64(4)).tolist()
    executed = wave.instructions.tolist()
    for index, following in zip(executed, [*executed[1:], len(text)], strict=True):
        code = instruction_code(text[index], writer.layout, sizes[index], following != index + 1)
        if code is None:
            continue
        time += step
        writer.instruction(code, time, slot)
        if code != IMMEDIATE and kinds[code] == "jump" and following < len(text):
            writer.add("NEW_PC", writer.time, wave=slot, pc=int(pc[following]) >> 2)
    writer.add("WAVE_END", writer.time + step, wave=slot)
