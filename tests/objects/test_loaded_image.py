"""Code objects that are made again of what a loader has put into memory."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from luthier import CodeObject
from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.loaded_image import file_of_image
from luthier.run.planner import Planner
from luthier.run.space import SharedSpace

from luthier_build.compile import compile_application

ROOT = Path(__file__).parents[2]


def loaded(object: CodeObject) -> bytearray:
    """The object in memory, as ROCr's loader puts it there."""
    memory = bytearray(max(segment.vaddr + segment.memsz for segment in object.segments))
    for segment in object.segments:
        memory[segment.vaddr : segment.vaddr + segment.filesz] = object.view[segment.offset :][: segment.filesz]
    return memory


@pytest.fixture(scope="module", params=["gfx90a", "gfx1100"])
def object(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CodeObject:
    output = tmp_path_factory.mktemp("loaded") / "o"
    compile_application(ROOT / "examples/apps/function_call.hip", request.param, output)
    return CodeObject(output.read_bytes())


def test_kernels_and_code_are_those_of_the_file(object: CodeObject) -> None:
    data = file_of_image(bytes(loaded(object)))
    assert data is not None
    again = CodeObject(data)
    assert again.target == object.target
    assert again.kernels.keys() == object.kernels.keys()
    for name, kernel in object.kernels.items():
        other = again.kernels[name]
        assert (other.descriptor, other.entry, other.code_size) == (kernel.descriptor, kernel.entry, kernel.code_size)
        assert other.metadata == kernel.metadata
        assert again.read(kernel.entry, kernel.code_size) == object.read(kernel.entry, kernel.code_size)
    dynamic = {(one.name, one.address, one.size) for one in object.symbols if one.dynamic}
    assert {(one.name, one.address, one.size) for one in again.symbols} == dynamic


def with_more_code(object: CodeObject, address: int, size: int) -> bytes:
    """Return an object that has one more executable section, in place of its comment."""
    data = bytearray(object.view)
    number, comment = next(
        (number, one) for number, one in enumerate(object.elf.sections) if not one.flags and one.type == E.SHT_PROGBITS
    )
    flags = E.SHF_EXECINSTR | E.SHF_ALLOC
    at = object.elf.header.sections_offset + number * E.SECTION_HEADER.size
    changed = comment._replace(address=address, size=size, flags=flags)
    data[at : at + E.SECTION_HEADER.size] = E.SECTION_HEADER.pack(changed)
    return bytes(data)


def test_empty_code_may_lie_in_no_segment(object: CodeObject) -> None:
    changed = CodeObject(with_more_code(object, 1 << 24, 0))
    assert changed.text_ranges == object.text_ranges
    assert changed.text_as_loaded(lambda name: None) == object.text_as_loaded(lambda name: None)


def test_an_object_whose_memory_was_reused_has_no_plan(object: CodeObject) -> None:
    """The device then takes the code that was loaded."""
    kernel = next(iter(object.kernels.values()))
    changed = with_more_code(object, 1 << 24, 64)
    no_space = cast(SharedSpace, None)  # it gets plans, of which there is none
    plan = Planner(no_space).plan_file(object.target, kernel.descriptor_address, 0, "memory://1", changed)
    assert plan is None


def test_what_the_program_writes_changes_nothing(object: CodeObject) -> None:
    memory = loaded(object)
    before = file_of_image(bytes(memory))
    table = next(one for one in object.elf.segments if one.type == E.PT_DYNAMIC)
    kept = memory[table.vaddr : table.vaddr + table.filesz]
    for segment in object.segments:
        if segment.flags & E.PF_W:
            memory[segment.vaddr : segment.vaddr + segment.memsz] = b"\x55" * segment.memsz
    memory[table.vaddr : table.vaddr + table.filesz] = kept
    assert file_of_image(bytes(memory)) == before


def test_other_memory_is_none(object: CodeObject) -> None:
    memory = bytes(loaded(object))
    assert file_of_image(b"") is None
    assert file_of_image(bytes(4096)) is None
    assert file_of_image(memory[: E.FILE_HEADER.size + 10]) is None
    random = np.random.default_rng(3)
    seen = {True: 0, False: 0}
    for _ in range(400):
        damaged = np.frombuffer(memory, np.uint8).copy()
        places = random.integers(0, 0x900, 4)
        damaged[places] = random.integers(0, 256, 4)
        data = file_of_image(damaged.tobytes()[: random.integers(64, len(memory) + 1)])
        seen[data is None] += 1
        if data is not None:
            with contextlib.suppress(LuthierError):
                CodeObject(data)
    assert min(seen.values()) > 10
