"""Code objects in a host program's data, in no bundle: GCC's, and made ones."""

from __future__ import annotations

import copy
import json
import random
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.objects import ObjectEditor, load_object, load_objects

Compile = Callable[..., Path]
Tool = Callable[..., str]

PROGRAM = """
int main(void) {
  int sum = 0, a[256];
  for (int i = 0; i < 256; i++) a[i] = i;
  #pragma omp target teams distribute parallel for map(to: a) map(tofrom: sum) reduction(+: sum)
  for (int i = 0; i < 256; i++) sum += a[i] * 3;
  #pragma omp target map(tofrom: a)
  for (int i = 0; i < 256; i++) a[i] ^= 5;
  return sum & a[3];
}
"""


@pytest.fixture(scope="module")
def gcc_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An OpenMP program whose target regions GCC compiled for gfx906."""
    folder = tmp_path_factory.mktemp("gcc")
    (folder / "program.c").write_text(PROGRAM)
    accelerator = "/usr/lib/gcc/x86_64-linux-gnu/12/accel/amdgcn-amdhsa/gfx906"
    command = ["gcc-12", "-O2", "-fopenmp", "-foffload=amdgcn-amdhsa", "program.c", "-o", "program"]
    offload = f"-foffload-options=amdgcn-amdhsa=-march=gfx906 -L{accelerator} -B{accelerator}"
    subprocess.run([*command, offload], cwd=folder, check=True, capture_output=True)
    return folder / "program"


def test_gcc_program(gcc_program: Path, tool: Tool, tmp_path: Path) -> None:
    object = load_object(gcc_program)
    assert (object.name, str(object.target), object.abi) == (f"{gcc_program}[.data+0x40]", "gfx906:xnack-", 4)
    # readelf finds the image whole, and the same kernels in it.
    path = tmp_path / "image.co"
    path.write_bytes(object.data)
    listed = tool("llvm-readelf-22", "--dyn-syms", "--sections", path)
    descriptors = {line.split()[-1].removesuffix(".kd") for line in listed.splitlines() if line.endswith(".kd")}
    assert set(object.kernels) == descriptors
    assert {"main._omp_fn.0", "main._omp_fn.2"} < descriptors
    # GCC writes a metadata note for each kernel.
    kernel = object.kernels["main._omp_fn.0"]
    assert (kernel.group_segment_fixed_size, kernel.kernarg_size, kernel.max_flat_workgroup_size) == (1536, 8, 1024)
    assert [row[".name"] for row in object.metadata["amdhsa.kernels"]] == [*object.kernels]
    assert all(kernel.metadata[".name"] == name for name, kernel in object.kernels.items())


def test_gcc_metadata_can_be_replaced(gcc_program: Path, tool: Tool, tmp_path: Path) -> None:
    object = load_object(gcc_program)
    metadata = copy.deepcopy(object.metadata)
    metadata["amdhsa.kernels"][1][".vgpr_count"] = 77
    editor = ObjectEditor(object)
    editor.set_metadata(metadata)
    path = tmp_path / "edited.co"
    path.write_bytes(editor.finish())
    after = load_object(path)
    assert after.metadata == metadata
    assert [kernel.vgpr_count for kernel in after.kernels.values()] == [24, 77, 24, 24]
    assert tool("llvm-readelf-22", "--notes", path).count("amdhsa.kernels:") == 1


def host_with(data: bytes, folder: Path, tool: Tool, section: str = ".rodata", *options: str) -> Path:
    """A shared library with `data` in one of its sections, behind 100 other bytes and before 1000 more."""
    (folder / "data.bin").write_bytes(data)
    flags = '"ax"' if section == ".text" else '"a"'
    (folder / "host.s").write_text(
        f'.section {section},{flags}\n.zero 100\n.incbin "{folder / "data.bin"}"\n.zero 1000, 7\n'
        ".text\n.globl f\nf: ret\n.data\n.quad 5\n"
    )
    out = folder / "host.so"
    tool("clang-22", "-shared", "-fuse-ld=lld-22", *options, folder / "host.s", "-o", out)
    return out


@pytest.mark.parametrize("section", [".rodata", ".data", ".mine"])
def test_several_images(section: str, code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    images = [code_object(target).read_bytes() for target in ("gfx942", "gfx1100", "gfx942")]
    host = host_with(images[0] + bytes(13) + images[1] + images[2], tmp_path, tool, section)
    objects = load_objects(host)
    assert [one.data for one in objects] == images  # each byte for byte, unaligned too
    assert len({one.name for one in objects}) == 3
    assert objects[0].name.startswith(f"{host}[{section}+0x")
    start = host.read_bytes().index(images[0])
    listed = (line.partition("]")[2].split() for line in tool("llvm-readelf-22", "-SW", host).splitlines())
    (offset,) = (int(row[3], 16) for row in listed if row[:1] == [section])
    assert objects[0].name == f"{host}[{section}+{start - offset:#x}]"


def test_one_of_many(code_object: Compile, tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a kernel that it alone has, its number, or its name; messages about many are short."""
    image = code_object("gfx942").read_bytes()
    images = [image.replace(b"vector_add", b"vector_%03d" % number) for number in range(20)]
    host = str(host_with(b"".join(images), tmp_path, tool))

    def says(*command: str, status: int = 0) -> str:
        assert main([*command]) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    for wrong, message in (([], "several code objects"), (["-k", "vec*"], "several"), (["--object", "20"], "no code")):
        problem = says("lift", host, *wrong, status=1)
        assert message in problem
        assert " and 12 more" in problem
        assert len(problem) < 1200
    listed = json.loads(says("objects", host, "--json"))
    assert [row["number"] for row in listed] == [*range(20)]
    assert f"{listed[7]['name']}: object 7, gfx942" in says("objects", host)
    inner = listed[7]["name"].partition("[")[2].rstrip("]")
    for options in (["-k", "vector_007"], ["--object", "7"], ["--object", listed[7]["name"]], ["--object", inner]):
        kernels = [kernel["kernel"] for kernel in json.loads(says("lift", host, "--json", *options))]
        assert kernels == (["vector_007"] if "-k" in options else ["vector_007", "reverse", "scratch"])
        says("extract", host, *options, "-o", str(tmp_path / "one"))
        assert (tmp_path / "one").read_bytes() == images[7]
    checked = json.loads(says("check", host, "-k", "vector_003", "-k", "vector_005", "--json"))
    assert [kernel["kernel"] for kernel in checked["kernels"]] == ["vector_003", "vector_005"]
    says("extract", host, "-o", f"{tmp_path}/all/")
    assert [(tmp_path / "all" / f"{number}-gfx942.hsaco").read_bytes() for number in range(20)] == images
    assert "give a folder" in says("extract", host, "-o", str(tmp_path / "some"), status=1)
    assert "luthier extract" in says("patch", host, "-t", "instr_count", "-o", str(tmp_path / "out"), status=1)


def test_beside_a_bundle_and_without_section_headers(
    code_object: Compile, compile_hip: Compile, tool: Tool, tmp_path: Path
) -> None:
    image = code_object("gfx1201").read_bytes()
    bundle = compile_hip("-c", "--offload-arch=gfx942")
    both = host_with(image, tmp_path, tool, ".rodata", str(bundle), "-Wl,-z,muldefs")
    assert [str(one.target) for one in load_objects(both)] == ["gfx942", "gfx1201"]
    bare = host_with(image, tmp_path, tool, ".rodata", "-Wl,-z,nosectionheader")
    assert [one.data for one in load_objects(bare)] == [image]


def test_what_only_looks_like_one(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """A header alone, a relocatable object, a cut one, one whose tables are elsewhere, or in code: none counts."""
    image = code_object("gfx942").read_bytes()
    relocatable = image[:16] + struct.pack("<H", 1) + image[18:]
    outside = image[:32] + struct.pack("<Q", 1 << 60) + image[40:]
    other_machine = image[:18] + struct.pack("<H", 62) + image[20:]
    for fake in (image[:8], image[:64], relocatable, outside, other_machine):
        with pytest.raises(LuthierError, match="contains no AMD GPU code object"):
            load_objects(host_with(fake, tmp_path, tool))
        assert [one.data for one in load_objects(host_with(fake + image, tmp_path, tool))] == [image]
    with pytest.raises(LuthierError, match="contains no AMD GPU code object"):
        load_objects(host_with(image, tmp_path, tool, ".text"))


def test_cut_images(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """Sevens follow: they are neither the end of a table nor a table."""
    image = code_object("gfx942").read_bytes()
    rng = random.Random(1)
    for length in (rng.randrange(9, len(image) - 1000) for _ in range(8)):
        with pytest.raises(LuthierError, match="contains no AMD GPU code object"):
            load_objects(host_with(image[:length], tmp_path, tool))


def test_a_host_full_of_headers(code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    """Each image has tables as large as the rest of the data, and is refused before it takes minutes."""
    header = bytearray(code_object("gfx942").read_bytes()[:64])
    header[56:58] = header[60:62] = struct.pack("<H", 0xFFFF)
    started = time.process_time()
    with pytest.raises(LuthierError, match="too many broken code objects"):
        load_objects(host_with(bytes(header) * 200_000, tmp_path, tool))
    assert time.process_time() - started < 5
