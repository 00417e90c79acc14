"""The native module's view of one processor, for whoever needs no NumPy."""

from __future__ import annotations

import functools

from luthier import _mc
from luthier.errors import TargetError
from luthier.isa import _operand_names
from luthier.isa.targets import TargetId


def native_isa(target: TargetId, wave_size: int) -> _mc.Isa:
    """LLVM's MC layer for `target`.

    Raises:
        TargetError: it does not have that wave size, or LLVM does not know it.
    """
    if wave_size not in target.target.wave_sizes:
        raise TargetError(f"{target.target.name} has no wave size {wave_size}", target=str(target))
    features = [*target.target.wave_features(wave_size), *target.target.decoder_features]
    for name, setting in (("xnack", target.xnack), ("sramecc", target.sramecc)):
        if setting is not None:
            features.append(f"{'+' if setting else '-'}{name}")
    try:
        return make(target.target.name, ",".join(features))
    except _mc.McError as problem:
        raise TargetError(problem.args[0], target=str(target)) from None


def make(cpu: str, features: str) -> _mc.Isa:
    """The native object, with the names of its operands known."""
    _set_operand_names()
    return _mc.Isa(cpu, features)


@functools.cache
def _set_operand_names() -> None:
    anchors = list(_operand_names.ANCHORS)
    numbers = zip(anchors, _mc.opcode_numbers(anchors), strict=True)
    opcodes = {name: number for name, number in numbers if number >= 0}
    _mc.set_operand_names(_operand_names.calibrate(opcodes, _mc.named_operand_positions))


def data_text(data: bytes) -> str:
    """What stands in a listing for bytes that are no instruction."""
    if len(data) % 4 == 0:
        words = (int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4))
        return ".long " + ", ".join(f"{word:#010x}" for word in words)
    return ".byte " + ", ".join(f"{byte:#04x}" for byte in data)
