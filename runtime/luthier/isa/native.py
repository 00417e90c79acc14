"""The native module's view of one processor, without NumPy."""

from __future__ import annotations

import functools

from luthier import _mc
from luthier.arch.targets import read_so_far
from luthier.errors import TargetError
from luthier.isa import operand_names
from luthier.isa.targets import TargetId


def native_isa(target: TargetId, wave_size: int) -> _mc.Isa:
    """Return LLVM's MC layer for a target.

    Raises:
        TargetError: the target does not have the wave size, or LLVM does not know it.
    """
    if wave_size not in target.target.wave_sizes:
        raise TargetError(f"{target.target.name} has no wave size {wave_size}", target=str(target))
    features = [*target.target.wave_features(wave_size), *target.target.decoder_features]
    for name, setting in (("xnack", target.xnack), ("sramecc", target.sramecc)):
        if setting is not None:
            features.append(f"{'+' if setting else '-'}{name}")
    try:
        return make(target.target.llvm_name, ",".join(features))
    except _mc.McError as problem:
        raise TargetError(problem.args[0], target=str(target)) from None


def make(cpu: str, features: str) -> _mc.Isa:
    """Return the native object, after setting operand names."""
    _set_operand_names(tuple(read_so_far()))
    return _mc.Isa(cpu, features)


@functools.lru_cache(maxsize=2)
def _set_operand_names(generations: tuple[str, ...]) -> None:
    """Set the operand names of some generations, given by name."""
    read = read_so_far()
    anchors = {name: text for given in generations for name, text in read[given].operand_anchors.items()}
    numbers = zip(anchors, _mc.opcode_numbers(list(anchors)), strict=True)
    opcodes = {name: number for name, number in numbers if number >= 0}
    _mc.set_operand_names(operand_names.calibrate(anchors, opcodes, _mc.named_operand_positions))


def data_text(data: bytes) -> str:
    """Return undecodable bytes as a directive for a listing."""
    if len(data) % 4 == 0:
        words = (int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))
        return ".long " + ", ".join(f"{word:#010x}" for word in words)
    return ".byte " + ", ".join(f"{byte:#04x}" for byte in data)
