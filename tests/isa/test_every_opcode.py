"""Every opcode of every target, with llvm-mc as the oracle: text, length, operands, and the way back.

LUTHIER_FUZZ=n tries n times as many encodings of each, `make test-all` also targets that differ from others in name
only.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from effort import EVERY_ISA, EVERYTHING, FUZZ
from luthier.emulator.inspection.coverage import samples
from luthier.errors import DecodeError
from luthier.isa import InstructionArray, Isa, OperandKind

VARIATIONS = (2 if EVERYTHING else 1) * FUZZ
"""Of each opcode's encoding, with random bits."""
MARK = "0x34,0x12,0x80,0xbf", "s_nop 0x1234"
"""What stands between instructions for llvm-mc, which resumes after an undecodable block."""
ROOM = 24
"""Bytes for one instruction, more than the longest has."""
RESERVED = re.compile(
    r"Invalid|CRASH"  # LLVM says so, or trips over it
    r"|^ds_gws_\w+ a\d|src_flat_scratch_base"  # registers that the target does not have
    r"|src_lds_direct|^s_\w*barrier\w* .*(s|ttmp|vcc|exec)"  # operands that are not of the generation or operation
    # A carry or mask in a vector register, which its printer does not notice.
    r"|^v_(addc|subb|subbrev|add_co_ci|sub_co_ci|subrev_co_ci|cndmask)\w* .*, v[\d\[][\d:\]]*( clamp)?$"
)
CHUNK = 256
"""Words offered at once: where llvm-mc crashes, all are tried again in halves."""
ENCODING = re.compile(r"^(.*?) ; encoding: \[(.*)\]$")
LITERAL_OFFSET = re.compile(r"^t?buffer_.* 0x[0-9a-f]{5,}")
"""A reserved encoding that LLVM reads, but cannot write; see also `has_literal`."""
WITHOUT_LITERAL = {(9, 0x34): (32, 41, 50), (12, 0x35): (32, 41, 50), (12, 0x32): (0, 32)}
"""Where instructions of VOP3 and VOPD have their sources that cannot be a literal of their kind, by major version and
upper six bits."""
LITERAL = {9: 0xFF, 12: 0xFE}
"""Number of such a literal: any one, on GFX1250 one of 64 bits."""
SYMBOLIC = "s_version"
"""Its operand prints as a symbol; only the number is kept."""


@dataclass(frozen=True)
class Reading:
    text: str
    encoded: bytes


def read_by_llvm(options: Sequence[str], blocks: Sequence[bytes]) -> list[list[Reading]]:
    """What llvm-mc makes of each block: its instructions up to the first that is none."""
    lines = []
    for block in blocks:
        lines += ["[" + ",".join(f"{byte:#04x}" for byte in block) + "]", f"[{MARK[0]}]"]
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", *options, "--disassemble", "--show-encoding"]
    quiet = {**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"}  # stack traces of crashes take longer than all the rest
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, env=quiet)
    if done.returncode < 0:  # it crashes on some reserved encodings
        if len(blocks) == 1:
            return [[Reading("CRASH", b"")]]
        half = len(blocks) // 2
        return read_by_llvm(options, blocks[:half]) + read_by_llvm(options, blocks[half:])
    result: list[list[Reading]] = [[]]
    for line in done.stdout.splitlines():
        if match := ENCODING.match(re.sub(r"\s+", " ", line.strip())):
            text, encoded = match.groups()
            if text == MARK[1]:
                result.append([])
            else:
                result[-1].append(Reading(text, bytes(int(byte, 16) for byte in encoded.split(",") if "A" not in byte)))
    assert len(result) == len(blocks) + 1
    return result[:-1]


def place(isa: Isa, operand: tuple[OperandKind, int]) -> tuple[OperandKind, int]:
    """A register's first unit, an immediate's value."""
    kind, value = operand
    return kind, int(isa.register_first_unit[value]) if kind is OperandKind.REGISTER else value


def encodings(isa: Isa, random: np.random.Generator) -> tuple[list[bytes], list[bytes]]:
    """Instructions, at least one of every opcode; and words that are none by themselves."""
    words = np.zeros((len(samples(isa)), ROOM // 4), np.uint32)
    for row, (code, index) in zip(words, samples(isa).values(), strict=True):
        data = code.bytes_of(index)
        row[: len(data) // 4] = np.frombuffer(data, np.uint32)
    tries = [words]
    for _ in range(VARIATIONS):
        noise = random.integers(0, 1 << 32, words.shape, np.uint32)
        noise[:, 0] &= random.choice(np.array([0xFF, 0x1FFFF, 0x7FFFF], np.uint32), len(words))
        tries.append(words ^ noise)
    tops = random.permutation(1 << 16)[: 400 * VARIATIONS].astype(np.uint32) << 16
    tries.append(np.pad(tops[:, None], ((0, 0), (0, ROOM // 4 - 1))))
    tries.append(random.integers(0, 1 << 32, (400 * VARIATIONS, ROOM // 4), np.uint32))
    everything = np.concatenate(tries)
    code = isa.decode(everything.tobytes())
    good, bad = [], []
    for index in np.flatnonzero(code.offset % ROOM == 0).tolist():
        if code.opcode[index] >= 0:
            if not is_reserved(isa, code, index):
                good.append(code.bytes_of(index))
        else:
            begin = int(code.offset[index])
            bad.append(code.code[begin : begin + ROOM])
    return good, bad


UNUSED = {*range(9, 17), *range(41, 64), *range(80, 88)}
"""Bits of fields that some instructions do not use: second sources of VOPD, third ones of VOP3 and VOPD3, modifiers of
DPP, `vdst` of DS; 49 is in no field of DPP, and LLVM does not look at it."""
UNUSED_DESTINATION = set(range(8))
"""The same of comparisons that write EXEC alone."""


def changed_bits(left: bytes, right: bytes) -> set[int]:
    """The numbers of the bits in which two encodings differ."""
    different = int.from_bytes(left, "little") ^ int.from_bytes(right, "little")
    return {number for number in range(different.bit_length()) if different >> number & 1}


def is_reserved(isa: Isa, code: InstructionArray, index: int) -> bool:
    """Return whether LLVM reads an instruction that it cannot write, or that depends on what comes behind it."""
    text, encoded = isa.text(code, index), code.bytes_of(index)
    # Its source is not looked at, unless a word for DPP or SDWA follows.
    open_end = text == "v_nop" and len(encoded) == 4 and encoded[0] in (0xE9, 0xEA, 0xF9, 0xFA)
    if open_end or has_literal(isa, encoded) or LITERAL_OFFSET.search(text):
        return True
    # LLVM writes inline floats of integer sources as literals; an instruction has one literal.
    try:
        isa.encode(isa.decode(encoded))
    except DecodeError as problem:
        return "one literal where two" in problem.message
    return False


def meaning(text: str) -> str:
    """Return a text without what bits that mean nothing choose.

    That is one of two opcodes for one operation, of which one calls v1.l v1, and half of the literal of a bfloat16.
    """
    text = text.replace(".l", "")
    return re.sub(r"(?<=, 0x)[0-9a-f]{4}(?=[0-9a-f]{4}$)", "", text) if "_bf16" in text else text


def has_literal(isa: Isa, encoded: bytes) -> bool:
    """Whether a source is a literal that cannot be there."""
    word, major = int.from_bytes(encoded[:8], "little"), isa.target.target.major
    places = WITHOUT_LITERAL.get((major, word >> 26 & 0x3F), ())
    return any(word >> place & 0x1FF == LITERAL[major] for place in places)


def has_reserved_selection(encoded: bytes) -> bool:
    """Whether an SDWA instruction's dst_unused is 3."""
    return encoded[0] == 0xF9 and encoded[5] >> 3 & 3 == 3


@pytest.mark.rows(1, "target")
@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_reads_as_llvm_does(target: str, wave: int, attributes: Callable[[str, int], list[str]]) -> None:
    isa, options = Isa.of(target, wave), [f"-mcpu={target}", *attributes(target, wave)]
    good, bad = encodings(isa, np.random.default_rng([FUZZ - 1, *target.encode(), wave]))
    code = isa.decode(b"".join(good))
    assert [code.bytes_of(index) for index in range(len(code))] == good
    assert set(code.opcode.tolist()) >= set(samples(isa))
    texts = isa.texts(code)
    encoded, offsets = isa.encode(code)
    ours = [encoded[begin:end] for begin, end in itertools.pairwise(offsets.tolist())]
    again = isa.decode(b"".join(one.ljust(ROOM, b"\0") for one in ours))
    texts_again = [text for text, offset in zip(isa.texts(again), again.offset, strict=True) if offset % ROOM == 0]
    lost = 0
    unread = []
    for index, readings in enumerate(read_by_llvm(options, good)):
        opcode = isa.opcode(int(code.opcode[index]))
        operands = code.operands(index)
        assert len(operands) == len(opcode.operands), texts[index]
        for info, operand in zip(opcode.operands, operands, strict=True):
            # LLVM gives v_fmac_f16_e64_dpp a whole register where its destination is half of it.
            assert info.tied_to < 0 or place(isa, operand) == place(isa, operands[info.tied_to]), texts[index]
            assert info.is_def <= (operand[0] is OperandKind.REGISTER), texts[index]
        if not readings:
            unread.append(index)
        elif not texts[index].startswith(SYMBOLIC):
            assert readings == [Reading(texts[index], ours[index])], good[index].hex()
        # LLVM prints an inline float constant of a 16-bit integer source as a number, and writes that as a literal.
        # Else these are bits that mean nothing, or another encoding of the same.
        if ours[index] != good[index] and not has_literal(isa, ours[index]):
            lost += 1
            assert meaning(texts_again[index]) == meaning(texts[index]), good[index].hex()
    # With fields set that the hardware ignores: nothing else is different, and LLVM reads what has them clear.
    for index in unread:
        exec_alone = "_nosdst" in isa.opcode(int(code.opcode[index])).pseudo
        ignored = UNUSED | UNUSED_DESTINATION if exec_alone else UNUSED
        assert changed_bits(good[index], ours[index]) <= ignored, texts[index]
    for index, readings in zip(unread, read_by_llvm(options, [ours[index] for index in unread]), strict=True):
        assert readings == [Reading(texts[index], ours[index])], good[index].hex()
    print(f"{len(good)} instructions, {lost} encoded otherwise; {len(bad)} that are none")
    chunks = (bad[start : start + CHUNK] for start in range(0, len(bad), CHUNK))
    read = itertools.chain.from_iterable(read_by_llvm(options, chunk) for chunk in chunks)
    for encoding, readings in zip(bad, read, strict=True):
        assert not readings or has_reserved_selection(encoding) or RESERVED.search(readings[0].text), encoding.hex()
