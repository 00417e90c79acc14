"""Compiled code for every target, and its disassembly by llvm-objdump."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from luthier.isa import Isa
from luthier.isa.targets import TARGETS

INPUTS = Path(__file__).parent / "inputs"


@dataclass(frozen=True)
class Line:
    """One line of llvm-objdump."""

    text: str
    size: int
    target: int | None


@dataclass(frozen=True)
class Corpus:
    """The .text section of one compiled object."""

    isa: Isa
    address: int
    code: bytes
    listing: dict[int, Line]


def _attributes(target: str, wave: int) -> list[str]:
    if TARGETS[target].major < 10:
        return []
    true16 = ",+real-true16" if TARGETS[target].major == 12 else ""
    return [f"-mattr=+wavefrontsize{wave},-wavefrontsize{96 - wave}{true16}"]


@pytest.fixture(scope="session")
def attributes() -> Callable[[str, int], list[str]]:
    """`attributes(target, wave size)`: arguments that have LLVM's tools read code as `Isa` does."""
    return _attributes


def _objdump(path: Path, target: str, wave: int) -> dict[int, Line]:
    """Address -> what llvm-objdump-22 prints there."""
    options = [f"--mcpu={target}", *("-" + option for option in _attributes(target, wave))]
    done = subprocess.run(["llvm-objdump-22", "-d", *options, str(path)], check=True, capture_output=True, text=True)
    lines: dict[int, Line] = {}
    symbols: dict[str, int] = {}
    for line in done.stdout.splitlines():
        if match := re.match(r"([0-9a-f]+) <(.*)>:$", line):
            symbols[match[2]] = int(match[1], 16)
        elif match := re.match(r"\t(.*?)\s*// ([0-9A-F]+): ([0-9A-F ]+?)(?: <(.*?)(?:\+0x([0-9a-f]+))?>)?$", line):
            named = None if match[4] is None else symbols.get(match[4])
            target_address = None if named is None else named + int(match[5] or "0", 16)
            text = re.sub(r"\s+", " ", match[1].strip())
            lines[int(match[2], 16)] = Line(text, 4 * len(match[3].split()), target_address)
    return lines


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Corpus]:
    """`corpus(target, wave size)`: inputs/corpus.c compiled for it, once."""
    folder = tmp_path_factory.mktemp("corpus")
    made: dict[tuple[str, int], Corpus] = {}

    def corpus(target: str, wave: int) -> Corpus:
        if (target, wave) not in made:
            path = folder / f"{target}-{wave}.o"
            flags: list[str] = []
            if TARGETS[target].major >= 10:
                flags = ["-mwavefrontsize64" if wave == 64 else "-mno-wavefrontsize64"]
            command = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={target}", *flags, "-nogpulib", "-O2", "-c"]
            subprocess.run([*command, str(INPUTS / "corpus.c"), "-o", str(path)], check=True)
            code = path.with_suffix(".bin")
            subprocess.run(
                ["llvm-objcopy-22", "-O", "binary", "--only-section=.text", str(path), str(code)], check=True
            )
            made[target, wave] = Corpus(Isa.of(target, wave), 0, code.read_bytes(), _objdump(path, target, wave))
        return made[target, wave]

    return corpus


@pytest.fixture(scope="session")
def objdump_of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes, str, int], dict[int, Line]]:
    """`objdump_of_bytes(data, target, wave size)`: address -> line, from 0.

    Raises:
        subprocess.CalledProcessError: llvm-objdump crashed, as it does on some reserved encodings.
    """
    folder = tmp_path_factory.mktemp("bytes")

    def objdump_of_bytes(data: bytes, target: str, wave: int) -> dict[int, Line]:
        binary, source, path = (folder / name for name in ("code.bin", "code.s", "code.o"))
        binary.write_bytes(data)
        source.write_text(f'.text\n.incbin "{binary}"\n')
        assembler = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", *_attributes(target, wave)]
        subprocess.run([*assembler, "-filetype=obj", str(source), "-o", str(path)], check=True)
        return _objdump(path, target, wave)

    return objdump_of_bytes
