"""Programs whose device code is instrumented on disk: they run as before, without a tool, and count what the device
counts itself."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compiling import compiled
from kept import kept, run, version
from luthier.errors import LuthierError, ObjectError
from luthier.isa.listing import instruction_rows
from luthier.lifting import lift
from luthier.objects import CodeObject, load_objects
from luthier.objects.host import HostFile
from luthier.patch import PatchedFile, patch_executable
from luthier.tool.task import InstrumentationTask

from luthier_build.workspace import digest

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
TARGETS = ("gfx90a", "gfx1030")
VARIANTS = {
    "pie": ["-fPIE", "-pie"],
    "no-pie": ["-no-pie"],
    "rdc": ["-fgpu-rdc", "--hip-link"],
    "lld": ["-fuse-ld=lld", "-fPIE", "-pie"],
    "packed": ["-fuse-ld=lld", "-fPIE", "-pie", "-Wl,-z,pack-relative-relocs"],
    "stripped": ["-s"],
}


HIPCC = ("env", "HIP_PLATFORM=amd", "hipcc", *(f"--offload-arch={target}" for target in TARGETS), "-O1", "-w", "-g")


def hipcc(*arguments: str | Path) -> None:
    run([*HIPCC, *map(str, arguments)])


@pytest.fixture(scope="session")
def reader() -> Path:
    """The library of examples/read_variables."""
    source = ROOT / "examples/read_variables/read_variables.cpp"
    command = ["g++", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", source]
    return compiled(command, [source], "libread_variables.so")


@pytest.fixture(scope="session")
def two_units() -> Callable[[str], Path]:
    """The program of two sources, linked in one of `VARIANTS`, or ``library``, where the second is one."""
    source = PROGRAMS / "two_units.hip"

    @functools.cache
    def build(variant: str) -> Path:
        flags = VARIANTS.get(variant, [])
        inputs = digest(source), digest(PROGRAMS / "check.h")
        key = version("hipcc"), *HIPCC, variant, *flags, str(source), *inputs
        return kept(key, lambda program: make(program, variant, flags), "program")

    def make(program: Path, variant: str, flags: list[str]) -> None:
        folder = program.parent
        if variant == "library":
            hipcc("-DSECOND", "-fPIC", "-shared", source, "-o", folder / "libsecond.so")
            hipcc(source, "-L", folder, "-lsecond", "-Wl,-rpath,$ORIGIN", "-o", program)
            return
        compile_flags = [flag for flag in flags if flag.startswith(("-f", "-D")) and not flag.startswith("-fuse")]
        for part, name in (("-DSECOND", "b"), ("-DFIRST", "a")):
            hipcc("-c", part, *compile_flags, source, "-o", folder / f"{name}-{variant}.o")
        hipcc(*flags, folder / f"a-{variant}.o", folder / f"b-{variant}.o", "-o", program)

    return build


def patch(counter: Any, path: Path, output: Path, **options: Any) -> PatchedFile:
    tool = counter()
    patched = patch_executable(str(path), tool.instrument, **options)
    output.write_bytes(patched.data)
    shutil.copymode(path, output)
    return patched


def counted(err: str) -> int:
    """The sum over what the reader printed."""
    return sum(int(value) for value in re.findall(r"^variable counter device \d+ bytes 8: (\d+)$", err, re.M))


def truth(counter: Any, counts: list[tuple[bytes, dict[int, tuple[int, int]]]]) -> int:
    """Return the tool's expected counts from those of the virtual device."""
    total = 0
    tool = counter()
    for data, by_address in counts:
        object = CodeObject(data)
        seen: set[int] = set()
        for kernel in object.kernels:
            task = InstrumentationTask(lift(object, kernel))
            for instruction in task.instructions:
                if instruction.address not in seen:
                    seen.add(instruction.address)
                    executions, lanes = by_address.get(instruction.address, (0, 0))
                    total += lanes if instruction.is_vector and not tool.options.per_wave else executions
    return total


@pytest.mark.parametrize(
    ("variant", "target"),
    [
        ("pie", "gfx90a"),
        pytest.param("no-pie", "gfx1030", marks=pytest.mark.thorough),
        *(
            pytest.param(variant, target, marks=pytest.mark.thorough)
            for variant, target in (("rdc", "gfx90a"), ("lld", "gfx1030"), ("packed", "gfx90a"), ("stripped", "gfx90a"))
        ),
    ],
)
def test_a_patched_program_runs(
    variant: str,
    target: str,
    two_units: Callable[[str], Path],
    counter: Any,
    reader: Path,
    luthier_run: Callable[..., Any],
    executed: Callable[..., Any],
    tmp_path: Path,
) -> None:
    program, output = two_units(variant), tmp_path / "patched"
    patched = patch(counter, program, output)
    assert not patched.skipped
    assert {str(object.target.target.name) for object, _ in patched.objects} == set(TARGETS)
    assert {one.kernel for _, found in patched.objects for one in found.report.kernels} == {"_Z5firstPi", "_Z6secondPi"}
    assert len(HostFile(str(output)).fat_binaries) == (1 if variant == "rdc" else 2)
    original = luthier_run(f"emu:{target}", program)
    changed = luthier_run(f"emu:{target}", output, env={"HSA_TOOLS_LIB": str(reader), "LUTHIER_VARIABLES": "counter"})
    assert (changed.code, changed.out) == (0, original.out), changed.err
    assert counted(changed.err) == truth(counter, executed(f"emu:{target}", program)) > 0
    names = [one.name for one in load_objects(output)]
    assert len(names) == len(load_objects(program))
    assert all(one.symbol("counter") for one in load_objects(output))


@pytest.mark.thorough
def test_a_library(
    two_units: Callable[[str], Path], counter: Any, reader: Path, luthier_run: Callable[..., Any], tmp_path: Path
) -> None:
    program = two_units("library")
    original = luthier_run("emu:gfx90a", program)
    shutil.copy(program, tmp_path / "program")
    patch(counter, program.parent / "libsecond.so", tmp_path / "libsecond.so")
    changed = luthier_run(
        "emu:gfx90a", tmp_path / "program", env={"HSA_TOOLS_LIB": str(reader), "LUTHIER_VARIABLES": "counter"}
    )
    assert (changed.code, changed.out) == (0, original.out), changed.err
    assert counted(changed.err) > 0


def test_what_is_not_meant_stays(two_units: Callable[[str], Path], counter: Any, tmp_path: Path) -> None:
    program = two_units("pie")
    patched = patch(counter, program, tmp_path / "patched", target="gfx90a", kernels=["second"])
    assert [(one.kernel, str(object.target)) for object, found in patched.objects for one in found.report.kernels] == [
        ("_Z6secondPi", "gfx90a")
    ]
    assert len(patched.skipped) == 3
    old, new = load_objects(program), load_objects(tmp_path / "patched")
    assert sum(one.data == other.data for one, other in zip(old, new, strict=True)) == 3
    with pytest.raises(ObjectError, match="no kernel matches 'third'"):
        patch(counter, program, tmp_path / "none", kernels=["third"])
    with pytest.raises(LuthierError):
        patch(counter, program, tmp_path / "none", target="gfx1100")


def test_a_compressed_bundle(two_units: Callable[[str], Path], counter: Any, tmp_path: Path) -> None:
    """The bundle of newer compilers is compressed; its replacement is not."""
    program = two_units("pie")
    host = HostFile(str(program))
    bundles = {}
    for number, fat in enumerate(host.fat_binaries):
        whole = fat.with_images({})
        packed = zlib.compress(whole)
        bundles[number] = b"CCOB" + struct.pack("<HHIIQ", 2, 0, 24 + len(packed), len(whole), 0) + packed
    compressed = tmp_path / "compressed"
    compressed.write_bytes(bytes(host.with_fat_binaries(bundles)))
    assert [one.data for one in load_objects(compressed)] == [one.data for one in load_objects(program)]
    patch(counter, compressed, tmp_path / "one")
    patch(counter, program, tmp_path / "two")
    assert [one.data for one in load_objects(tmp_path / "one")] == [one.data for one in load_objects(tmp_path / "two")]


def test_the_map(two_units: Callable[[str], Path], counter: Any) -> None:
    """Every instruction of a patched kernel is unchanged at its new address, and has its source line."""
    tool = counter()
    patched = patch_executable(str(two_units("pie")), tool.instrument, target="gfx90a", hoist=False)
    seen = 0
    for old, object in patched.objects:
        new = CodeObject(object.data)
        for places in object.maps:
            lifted = lift(old, places.kernel)
            assert places.originals.tolist() == [one.address for one in InstrumentationTask(lifted).instructions]
            assert places.code.start <= places.addresses[0] <= places.addresses[-1] < places.code.stop
            for row, address in zip(places.rows(old), places.addresses.tolist(), strict=True):
                before = lifted.index_at(row.original)
                assert before is not None
                (after, *_) = instruction_rows(new.target, lifted.wave_size, new.read(address, 16), address)
                assert after.text.split()[0] == lifted.instructions[before].text.split()[0]
                location = lifted.instructions[before].source
                assert (row.file, row.line) == ((location.file, location.line) if location else ("", 0))
                assert row.begin < address
                seen += 1
    assert seen > 30


@pytest.mark.parametrize("how", ["no wrapper", "version", "pointer", "relocation", "headers", "no program"])
def test_refusals(how: str, two_units: Callable[[str], Path], counter: Any, tmp_path: Path) -> None:
    """Files that differ from the output of HIP's compiler are refused."""
    program = two_units("pie")
    data = bytearray(program.read_bytes())
    host = HostFile(str(program))
    wrapper = data.find(b"FPIH")
    assert wrapper > 0
    message = {
        "no wrapper": "no section .hipFatBinSegment",
        "version": "version 7",
        "pointer": "not in the file",
        "relocation": "cannot be changed",
        "headers": "no section headers",
        "no program": "not an executable",
    }[how]
    if how == "no wrapper":
        data = data.replace(b".hipFatBinSegment", b".hipFatBinSegmenx")
    elif how == "version":
        data[wrapper + 4] = 7
    elif how == "pointer":
        at = data.find(struct.pack("<QQ", host.fat_binaries[0].wrappers[0], 8))
        struct.pack_into("<Q", data, at + 16, 1 << 40)
    elif how == "relocation":
        at = data.find(struct.pack("<QQ", host.fat_binaries[0].wrappers[0], 8))
        assert at > 0
        struct.pack_into("<Q", data, at + 8, 1)
    elif how == "headers":
        struct.pack_into("<Q", data, 40, 0)
        struct.pack_into("<H", data, 60, 0)
    else:
        struct.pack_into("<H", data, 18, 3)
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(ObjectError, match=message):
        patch(counter, tmp_path / "bad", tmp_path / "patched")


def test_damaged_programs(two_units: Callable[[str], Path], tmp_path: Path) -> None:
    """Cut or with bits flipped in their headers and wrappers: parsed or refused."""
    import random

    whole = two_units("pie").read_bytes()
    numbers = random.Random(5)
    path = tmp_path / "damaged"
    for _ in range(150):
        data = bytearray(whole)
        if numbers.random() < 0.2:
            del data[numbers.randrange(len(data)) :]
        else:
            places = [(0, 1024), (whole.find(b"FPIH"), 48), (len(whole) - 2500, 2500), (0x600, 0x300)]
            start, size = numbers.choice(places)
            for _ in range(numbers.choice((1, 2))):
                data[start + numbers.randrange(size)] ^= 1 << numbers.randrange(8)
        path.write_bytes(data)
        try:
            host = HostFile(str(path))
            host.with_fat_binaries({at: one.with_images({}) for at, one in enumerate(host.fat_binaries)})
        except LuthierError:
            continue


def test_the_command(
    two_units: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], counter: Any
) -> None:
    """`luthier patch` writes a program that can be executed, a map and a report."""
    from luthier.cli.main import main
    from luthier.tool import ToolGroup

    tool = counter()
    tool.name = "counter"
    replaced = pytest.MonkeyPatch()
    replaced.setattr("luthier.tool.parse_tools", lambda names: ToolGroup([tool]))
    try:
        output, places = tmp_path / "patched", tmp_path / "map"
        arguments = ["patch", str(two_units("pie")), "-t", "x", "-o", str(output)]
        assert main([*arguments, "--map", f"{places}.json", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert len(report["objects"]) == 4
        assert os.access(output, os.X_OK)
        rows = json.loads(Path(f"{places}.json").read_text())
        assert {Path(row["file"]).name for row in rows} >= {"two_units.hip"}
        assert main([*arguments, "--map", f"{places}.parquet", "--target", "gfx90a"]) == 0
        assert "not instrumented: it is for gfx1030" in capsys.readouterr().err
        import pyarrow.parquet as pq

        table = pq.read_table(f"{places}.parquet").to_pylist()
        assert table == [row for row in rows if row["target"] == "gfx90a"]
        assert main([*arguments, "--code-object", "--target", "gfx90a"]) == 1  # two of them
        capsys.readouterr()
        assert main([*arguments, "--object", "1", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["objects"]
        assert row["name"] == report["objects"][1]["name"]
        assert main([*arguments, "--code-object", "--object", row["name"]]) == 0
    finally:
        replaced.undo()
