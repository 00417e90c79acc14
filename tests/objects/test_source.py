"""Source lines and inlined calls, against llvm-symbolizer; damaged debug information."""

from __future__ import annotations

import itertools
import json
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from compiling import compiled
from effort import FUZZ
from luthier.errors import LuthierError, ObjectError
from luthier.objects import CodeObject, SourceMap, load_object
from luthier.objects import elf as E
from luthier.objects.source import SourceSelection

from luthier_build.toolchain import Toolchain

SOURCE = Path(__file__).parent / "inputs" / "inlined.hip"
CLANGS = [f"clang-{version}" for version in (15, 22)]
FLAGS = {
    "v4": ["-gdwarf-4"],
    "v5": ["-gdwarf-5"],
    "zlib": ["-gdwarf-5", "-gz=zlib"],
    "zstd": ["-gdwarf-5", "-gz=zstd"],
    "lines": ["-gline-tables-only"],
    "unoptimized": ["-g", "-O0"],
    "64-bit": ["-gdwarf-5", "-gdwarf64"],
}
CASES = [(clang, kind) for clang, kind in itertools.product(CLANGS, FLAGS) if (clang, kind) != ("clang-15", "zstd")]


def build(clang: str, target: str, *flags: str) -> CodeObject:
    toolchain = Toolchain.find({**os.environ, "LUTHIER_CLANG": clang})
    command = [
        toolchain.clang,
        *toolchain.device_flags(target),
        "--offload-device-only",
        "--no-gpu-bundle-output",
        "-O2",
    ]
    return load_object(compiled([*command, *flags, SOURCE], [SOURCE], f"{target}.hsaco"))


def addresses(object: CodeObject) -> list[int]:
    return [at for start, size in object.text_ranges for at in range(start, start + size, 4)]


def by_llvm(object: CodeObject, asked: list[int]) -> list[list[tuple[str, str, int, int]]]:
    """llvm-symbolizer's frames of each address."""
    command = ["llvm-symbolizer-22", f"--obj={object.name}", "--output-style=JSON", "--no-demangle", "--inlines"]
    text = "\n".join(map(hex, asked))
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return [
        [
            (frame["FunctionName"], frame["FileName"], frame["Line"], frame["Column"])
            for frame in json.loads(line)["Symbol"]
            if frame["FileName"]
        ]
        for line in out.splitlines()
    ]


def frames(object: CodeObject, address: int) -> list[tuple[str, str, int, int]]:
    frames = object.source.at(address)
    return [] if frames is None else [tuple(frame) for frame in frames.frames]


@pytest.mark.rows(1)
@pytest.mark.parametrize(("clang", "kind"), CASES)
def test_every_instruction(clang: str, kind: str) -> None:
    target = {"v4": "gfx1030", "lines": "gfx1100", "zlib": "gfx906"}.get(kind, "gfx90a")
    object = build(clang, target, *FLAGS[kind])
    asked = addresses(object)
    assert [frames(object, address) for address in asked] == by_llvm(object, asked)
    assert object.source.problems == []
    numbers = object.source.numbers(asked).tolist()
    assert [None if number < 0 else object.source.locations[number] for number in numbers] == [
        object.source.at(address) for address in asked
    ]
    if kind != "unoptimized":
        assert max(len(location.frames) for location in object.source.locations) == 3


@pytest.mark.parametrize("version", [4, 5])
def test_relative_folders(version: int) -> None:
    """The compiler was given other names of its folder and of the source's folder; they are joined once."""
    names = [f"-fdebug-prefix-map={SOURCE.parent}=folder", "-fdebug-compilation-dir=src"]
    object = build("clang-22", "gfx90a", f"-gdwarf-{version}", *names)
    asked = addresses(object)
    assert [frames(object, address) for address in asked] == by_llvm(object, asked)
    assert "src/folder/inlined.hip" in {location.file for location in object.source.locations}


def test_inlined_calls() -> None:
    source = look(build("clang-22", "gfx90a", "-g"))
    stacks = {location: [frame.name for frame in location.frames] for location in source.locations}
    deep = next(one for one, names in stacks.items() if names == ["innermost<float>", "middle", "kernel"])
    text = SOURCE.read_text().splitlines()
    for frame, part in zip(deep.frames, ["x * 2.0f", "innermost(p, *p)", "middle(p + i)"], strict=True):
        assert part in text[frame.line - 1]
        assert text[frame.line - 1].find(part) - frame.column < len(part)
    assert str(deep).count("inlined at") == 2
    assert [one["name"] for one in deep.to_json()] == ["innermost<float>", "middle", "kernel"]


def test_several_units(tmp_path: Path) -> None:
    """Objects linked from several sources."""
    parts = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.c").write_text(
            f"int shared_{name};\nint {name}(int x) {{\n  return x * 3 + shared_{name};\n}}\n"
        )
        command = ["clang-22", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-fPIC", "-g", "-O1", "-c"]
        subprocess.run([*command, f"{name}.c", "-o", f"{name}.o"], cwd=tmp_path, check=True)
        parts.append(f"{name}.o")
    subprocess.run(["ld.lld-22", "-shared", *parts, "-o", "both"], cwd=tmp_path, check=True)
    object = load_object(tmp_path / "both")
    asked = addresses(object)
    assert [frames(object, address) for address in asked] == by_llvm(object, asked)
    assert {Path(one.file).name for one in object.source.locations} == {"one.c", "two.c"}


def test_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are available; that inlined calls are in another file is reported."""
    monkeypatch.chdir(tmp_path)  # clang puts the .dwo there
    object = build("clang-22", "gfx90a", "-g", "-gsplit-dwarf")
    asked = addresses(object)
    lines = [[frame[1:] for frame in one[:1]] for one in by_llvm(object, asked)]
    assert [[frame[1:] for frame in frames(object, address)] for address in asked] == lines
    assert any("is not read" in problem for problem in object.source.problems)


def test_without_debug_information() -> None:
    source = build("clang-22", "gfx90a").source
    assert not source.present
    assert source.at(0x1000) is None
    assert "-g" in source.problems[0]


def test_selections() -> None:
    source = look(build("clang-22", "gfx90a", "-g"))
    text = SOURCE.read_text().splitlines()
    inner = next(number for number, line in enumerate(text, 1) if "x * 2.0f" in line)
    call = next(number for number, line in enumerate(text, 1) if "middle(p + i)" in line)
    deep = next(one for one in source.locations if one.line == inner and one.frames[-1].name == "kernel")
    for good in ("inlined.hip", f"inlined.hip:{inner}", f":{inner}", f"inputs/inlined.hip:1,{inner - 1}-{inner}",
                 f"*.hip:{inner}", str(SOURCE), f"inlined.hip:{call}"):  # fmt: skip
        assert SourceSelection(good).takes(deep), good
    for other in (f"inlined.hip:{inner + 1}-{inner + 2}", "lined.hip", "*.cpp", f"other.hip:{inner}"):
        assert not SourceSelection(other).takes(deep), other
    for wrong in ("", "a.hip:5-3", "a.hip:5,9-8", ":" + "1" * 5000, ":1-" + "9" * 19):
        with pytest.raises(ObjectError, match="is not a selection of source lines"):
            SourceSelection(wrong)


Damage = Callable[[dict[str, bytearray]], None]


def debug_sections(object: CodeObject) -> dict[str, tuple[int, int]]:
    return {one.name: (one.offset, one.size) for one in object.sections if one.name.startswith(".debug")}


def with_section(object: CodeObject, name: str, contents: bytes) -> CodeObject:
    """The object with another section of that name, behind everything else."""
    data = bytearray(object.data)
    index = object.elf.section_names.index(name)
    header = object.elf.sections[index]._replace(offset=len(data), size=len(contents))
    at = object.elf.header.sections_offset + index * E.SECTION_HEADER.size
    data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(header)
    return CodeObject(bytes(data + contents))


def look(object: CodeObject) -> SourceMap:
    """Everything that can be asked of it, in little time."""
    start = time.process_time()
    for number in object.source.numbers(addresses(object)):
        assert number < len(object.source.locations)
    for location in object.source.locations:
        assert str(location)
        assert location.to_json()
    assert time.process_time() - start < 20
    return object.source


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", ["v4", "v5", "zlib"])
def test_damage(kind: str) -> None:
    """Bits flipped, words replaced and ends cut off in debug sections: read or reported, and nothing else."""
    whole = build("clang-22", "gfx90a", *FLAGS[kind])
    parts = [(offset, size) for name, (offset, size) in debug_sections(whole).items() if name != ".debug_frame"]
    numbers = random.Random(kind)
    problems = 0
    for _ in range(80 * FUZZ):
        data = bytearray(whole.data)
        offset, size = numbers.choice(parts)
        how = numbers.random()
        for _ in range(numbers.choice((1, 1, 2, 8))):
            at = offset + numbers.randrange(min(size, numbers.choice((64, size))))
            if how < 0.5:
                data[at] ^= 1 << numbers.randrange(8)
            elif how < 0.7:
                data[at : at + 8] = numbers.choice([b"\xff" * 8, bytes(8), numbers.randbytes(8)])
            else:
                data[at : offset + size] = numbers.choice([b"\0", b"\xff"]) * (offset + size - at)
        try:
            damaged = CodeObject(bytes(data[: len(whole.data)]))
        except LuthierError:
            continue
        problems += bool(look(damaged).problems)
    assert problems > 10


def test_cut_sections() -> None:
    whole = build("clang-22", "gfx90a", "-g")
    for name, (offset, size) in debug_sections(whole).items():
        if name not in (".debug_frame", ".debug_loclists", ".debug_str"):  # not needed for what was asked
            for length in (0, 1, size // 2, size - 1):
                problems = look(with_section(whole, name, whole.data[offset : offset + length])).problems
                assert problems or length >= size // 2, (name, length)


def line_header(tables: bytes, version: int = 5, program: bytes = b"") -> bytes:
    opcodes = bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
    after_length = bytes([4, 1, 1]) + struct.pack("<bBB", -5, 14, 13) + opcodes + tables
    body = struct.pack("<HBBI", version, 8, 0, len(after_length)) + after_length + program
    return struct.pack("<I", len(body)) + body


FILES_OF_ONE_FOLDER = b"\x01\x01\x08\x01d\0" + b"\x02\x01\x08\x02\x0f\x02a\0\0b\0\0"


def goes_on(bits: int) -> bytes:
    """Return a line program that advances by a number of `bits` bits."""
    more = bytes([0x80] * (bits // 7) + [1 << bits % 7])
    return b"\0\x09\x02" + bytes(8) + b"\x01\x02" + more + b"\x01\0\x01\x01"


@pytest.mark.parametrize(
    ("section", "contents", "problem"),
    [
        (".debug_line", line_header(b"\0" + b"\xff" * 8 + b"\x01"), "empty entries in"),
        (".debug_line", line_header(b"\x01\x01\x19" + b"\xff" * 8 + b"\x01"), "entries of unknown form 0x19"),
        (".debug_line", line_header(b"\x01\x01\x08" + b"\xff" * 8 + b"\x01" + b"\0" * 99), "unterminated"),
        (".debug_line", line_header(b"\xff" * 5000), "number without an end"),
        (".debug_line", b"\xff" * 4 + b"\xff" * 8, "reaches past the end"),
        (".debug_abbrev", b"\xff" * 100_000, "number without an end"),
        (".debug_info", b"\xff" * 100_000, "number without an end"),
        (".debug_line", b"", "line table"),
        (".debug_line", line_header(FILES_OF_ONE_FOLDER, program=goes_on(64)), "exceeds 64 bits"),
        (".debug_line", line_header(FILES_OF_ONE_FOLDER, program=goes_on(65)), "exceeds 64 bits"),
        (".debug_line", line_header(FILES_OF_ONE_FOLDER, program=goes_on(500)), "exceeds 64 bits"),
    ],
)  # fmt: skip
def test_malice(section: str, contents: bytes, problem: str) -> None:
    source = look(with_section(build("clang-22", "gfx90a", "-g"), section, contents))
    assert problem in " ".join(source.problems)
    assert not source.locations


def test_compressed_bomb() -> None:
    """A section that claims to be larger than anything."""
    whole = build("clang-22", "gfx90a", *FLAGS["zlib"])
    offset, size = debug_sections(whole)[".debug_info"]
    contents = bytearray(whole.data[offset : offset + size])
    struct.pack_into("<Q", contents, 8, 1 << 40)
    assert "claims to contain" in look(with_section(whole, ".debug_info", bytes(contents))).problems[0]
    struct.pack_into("<Q", contents, 8, 1)
    assert "instead of" in look(with_section(whole, ".debug_info", bytes(contents))).problems[0]


def test_no_import_before_it_is_needed() -> None:
    """pyelftools takes longer to import than many commands to run."""
    object = build("clang-22", "gfx90a", "-g")
    code = (
        "import sys, luthier; from luthier.lifting import lift; from luthier.objects import load_object;"
        f"one = lift(load_object({object.name!r}), '_Z6kernelPfi'); assert 'elftools' not in sys.modules;"
        "assert one.instructions[0].source.line; assert 'elftools' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("size", [(1 << 64) - 1, (1 << 64) - 0x1000, 1 << 63])
def test_functions_that_go_on_beyond_all_addresses(size: int) -> None:
    object = build("clang-22", "gfx90a", "-g")
    start, length = object.text_ranges[0]
    source = SourceMap(object.elf, object.text_ranges, [("f", start, size)])
    assert source.at(start + length - 4) == object.source.at(start + length - 4)
    assert source.problems == []
