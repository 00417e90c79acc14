"""Writes traces for simulators.

Accel-Sim: ``kernelslist.g`` and a ``.traceg`` file for each launch (accel-sim-framework, util/tracer_nvbit). Opcodes
are AMD's mnemonics and masks have 64 bits, so the simulator needs a table of opcodes and a configuration for the GPU.
Ramulator 2: its load-store trace, a line ``LD`` or ``ST`` with an address for each cache line that an instruction
accesses.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from luthier.errors import LuthierError
from luthier.isa import Isa
from luthier.isa.registers import UnitSet, unit_name
from luthier.lifting.instructions.effects import Columns, effect_table
from luthier.support.files import check_writable

from luthier_isa_trace import KINDS, SPACES
from luthier_isa_trace.reading import ADDRESS_COLUMNS, InstructionTrace, TracedAccess, TracedKernel, TracedWave

_FORMAT = "#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [compress] [addresses]"
_IN_MEMORY = ("global", "flat", "buffer", "scalar", "scalar buffer")


def new_folder(folder: Path) -> None:
    """Make a folder.

    Raises:
        LuthierError: it exists, or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise LuthierError(f"cannot make {folder}: {problem.strerror or problem}; name a new folder") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert errors of writing a file, or files of a folder, to `LuthierError`."""
    try:
        yield
    except OSError as problem:
        raise LuthierError(f"cannot write {path}: {problem.strerror or problem}") from problem


def write_accel_sim(trace: InstructionTrace, folder: Path) -> int:
    """Write ``kernelslist.g`` and a trace for each launch to a new folder; return the number of launches.

    Raises:
        LuthierError: the folder exists, the disk is full, or the trace is damaged.
    """
    new_folder(folder)
    launches = _Launches(trace, folder)
    with writing(folder):
        for wave in trace.waves():
            launches.add(wave)
        return launches.finish()


class _Launches:
    """The files of launches, each with the work-group that is being written."""

    def __init__(self, trace: InstructionTrace, folder: Path) -> None:
        self._folder = folder
        self._facts: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
        for row in trace.run.rows("launches"):
            if not row["instrumented"]:
                continue
            self._facts.setdefault((row["process"], row["device"], row["kernel"]), []).append(row)
        self._numbers: dict[tuple[int, int, int, int], int] = {}
        self._groups: dict[int, tuple[tuple[int, int, int], list[str]]] = {}

    def add(self, wave: TracedWave) -> None:
        """Write a wave to the file of its launch, in its work-group."""
        key = (wave.process, wave.device, wave.kernel.number, wave.launch)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            self._path(number).write_text("\n".join(self._head(wave, number)) + "\n")
        if number in self._groups and self._groups[number][0] != wave.workgroup:
            self._flush(number)
        _, lines = self._groups.setdefault(number, (wave.workgroup, []))
        lines += ["", f"warp = {wave.number}", f"insts = {len(wave.instructions)}", *_lines(wave)]

    def _path(self, number: int) -> Path:
        return self._folder / f"kernel-{number}.traceg"

    def _head(self, wave: TracedWave, number: int) -> Iterator[str]:
        rows = self._facts.get((wave.process, wave.device, wave.kernel.name), [])
        row = rows[wave.launch] if wave.launch < len(rows) else {}
        block, items = ([row.get(f"{size}_{axis}") for axis in "xyz"] for size in ("block", "grid"))
        if None in block or None in items:
            raise LuthierError(f"the run does not have the sizes of launch {wave.launch} of {wave.kernel.name}")
        grid = [-(-all_items // own) for all_items, own in zip(items, block, strict=True)]
        yield f"-kernel name = {wave.kernel.name}"
        yield f"-kernel id = {number}"
        yield f"-grid dim = ({','.join(map(str, grid))})"
        yield f"-block dim = ({','.join(map(str, block))})"
        yield f"-shmem = {row['group_segment'] or 0}"
        yield f"-nregs = {trace_registers(wave.kernel)}"
        yield f"-binary version = {wave.kernel.target}"
        yield "-cuda stream id = 0"
        yield "-accelsim tracer version = 4"
        yield ""
        yield _FORMAT
        yield ""

    def _flush(self, number: int) -> None:
        group, lines = self._groups.pop(number)
        with self._path(number).open("a") as file:
            head = f"#BEGIN_TB\n\nthread block = {','.join(map(str, group))}"
            file.write("\n".join([head, *lines, "", "#END_TB", "", ""]))

    def finish(self) -> int:
        """Write the last work-groups and the list of launches; return their number."""
        for number in list(self._groups):
            self._flush(number)
        names = [f"kernel-{number}.traceg\n" for number in self._numbers.values()]
        (self._folder / "kernelslist.g").write_text("".join(names))
        return len(names)


def _lines(wave: TracedWave) -> Iterator[str]:
    accesses = {access.at: access for access in wave.accesses}
    known = registers_of(wave.kernel)
    places, masks = wave.kernel.pc[wave.instructions].tolist(), wave.exec.tolist()
    for at, (index, pc, mask) in enumerate(zip(wave.instructions.tolist(), places, masks, strict=True)):
        written, read = known[index]
        mnemonic = wave.kernel.text[index].split(" ", 1)[0]
        words = [f"{pc:04x}", f"{mask:016x}", str(len(written)), *written, mnemonic, str(len(read)), *read]
        yield " ".join([*words, *_memory(accesses.get(at))])


def _memory(access: TracedAccess | None) -> list[str]:
    """Return width, kind of compression and addresses: 1, base and distance; 0 and each lane's address."""
    if access is None or not access.size:
        return ["0"]
    words = []
    for addresses in access.addresses:
        each = [addresses[lane] for lane in sorted(addresses)]
        distances = {after - before for before, after in itertools.pairwise(each)}
        even = len(distances) <= 1
        words += [str(access.size), *(["1", hex(each[0]), str(*distances or {0})] if even else ["0", *map(hex, each)])]
    return words


def registers_of(kernel: TracedKernel) -> tuple[tuple[list[str], list[str]], ...]:
    """Return the registers that each instruction of a kernel writes and reads, by their names in assembly."""
    return _registers(kernel.target.partition(":")[0], kernel.wave_size, tuple(kernel.text))


@lru_cache(maxsize=64)
def _registers(target: str, wave_size: int, texts: tuple[str, ...]) -> tuple[tuple[list[str], list[str]], ...]:
    isa = Isa.of(target, wave_size)
    table = effect_table(isa)
    pairs: list[tuple[list[str], list[str]]] = []
    for text in texts:
        try:
            columns = Columns(isa.assemble(text).instructions)
        except LuthierError:  # words that are no instruction of the target
            pairs.append(([], []))
            continue
        effects = table.of(columns, 0)
        written, read = (list(map(unit_name, UnitSet(units))) for units in (effects.writes, effects.reads))
        pairs.append((written, read))
    return tuple(pairs)


def trace_registers(kernel: TracedKernel) -> int:
    """Return the number of VGPRs that a kernel's code names."""
    names = {name for written, read in registers_of(kernel) for name in (*written, *read)}
    return max((int(name[1:]) + 1 for name in names if re.fullmatch(r"v\d+", name)), default=0)


def write_ramulator(trace: InstructionTrace, path: Path, line: int = 64) -> int:
    """Write the cache lines that instructions access in memory, in the order of the records; return their number.

    Args:
        line: bytes of a cache line.

    Raises:
        LuthierError: the run has no addresses, or the file cannot be written.
    """
    if "trace-addresses" not in trace.run.names:
        raise LuthierError(f"{trace.run.path} has no addresses: run with -t isa_trace:addresses=true")
    check_writable(path)
    with writing(path), path.open("w") as file:
        return sum(_write_lines(file, row, line) for row in trace.run.rows("trace-addresses", list(ADDRESS_COLUMNS)))


def _write_lines(file: IO[str], row: dict[str, int], line: int) -> int:
    if SPACES[row["space"]] not in _IN_MEMORY:
        return 0
    lanes = [lane for lane in range(64) if row["lanes"] >> lane & 1] or [0]
    starts = [row["address"] + row["distance"] * lane for lane in lanes]
    size = max(row["size"], 1)
    lines = dict.fromkeys(at // line for start in starts for at in (start, start + size - 1))
    kinds = ("LD",) if KINDS[row["kind"]] == "load" else ("ST",) if KINDS[row["kind"]] == "store" else ("LD", "ST")
    file.writelines(f"{kind} {at * line:#x}\n" for at in lines for kind in kinds)
    return len(lines) * len(kinds)
