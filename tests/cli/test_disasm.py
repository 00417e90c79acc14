"""`luthier disasm`, with llvm-objdump as the oracle."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.disasm import listing
from luthier.cli.main import main
from luthier.objects import CodeObject
from luthier.objects.descriptor import DESCRIPTOR_SIZE
from luthier.objects.parts import parts
from msgspec.structs import replace


@pytest.fixture(scope="module")
def gfx942(fat: Path) -> Path:
    path = fat.with_suffix(".gfx942")
    bundler = ["clang-offload-bundler-22", "--type=o", "--unbundle", f"--input={fat}", f"--output={path}"]
    subprocess.run([*bundler, "--targets=hipv4-amdgcn-amd-amdhsa--gfx942"], check=True)
    return path


def objdump(path: Path) -> dict[int, str]:
    done = subprocess.run(["llvm-objdump-22", "-d", str(path)], check=True, capture_output=True, text=True)
    lines = re.findall(r"^\t(.*?)\s*// ([0-9A-F]+): ", done.stdout, re.MULTILINE)
    return {int(address, 16): re.sub(r"\s+", " ", text.strip()) for text, address in lines}


def test_listing(gfx942: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(gfx942)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(f"{gfx942}: gfx942, code object v6\n")
    assert re.search(
        r"^[0-9a-f]{16} <loop>: // kernel, wave64, \d+ bytes, \d+ instructions$", captured.out, re.MULTILINE
    )
    assert re.search(r"^[0-9a-f]{16} <_Z5twicePii>: // function, \d+ bytes", captured.out, re.MULTILINE)
    expected = objdump(gfx942)
    lines = re.findall(r"^ +([0-9a-f]+)  ([0-9a-f]{8}(?: [0-9a-f]{8})*) +(\S.*)$", captured.out, re.MULTILINE)
    assert len(lines) > 50
    labels = set(re.findall(r"^(L_[0-9a-f]+):$", captured.out, re.MULTILINE))
    branches = 0
    for address, _, text in lines:
        theirs = expected[int(address, 16)]
        if "branch" in text:
            assert text.split()[0] == theirs.split()[0]
            assert text.split()[-1] in labels
            branches += 1
        else:
            assert text == theirs
    assert branches >= 3
    for label in labels:
        assert f"\n{label}:\n  {label[2:]:>8}  " in captured.out


def test_json_and_kernel(gfx942: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(gfx942), "--json", "--kernel", "loop"]) == 0
    (described,) = json.loads(capsys.readouterr().out)
    assert described["target"] == "gfx942"
    (function,) = described["functions"]
    assert (function["name"], function["kernel"], function["wave_size"]) == ("loop", True, 64)
    instructions = function["instructions"]
    assert instructions[0]["label"] == "loop"
    assert instructions[-1]["text"] == "s_endpgm"
    expected = objdump(gfx942)
    assert {one["address"]: one["text"] for one in instructions}.items() <= expected.items()
    assert sum(len(one["bytes"]) // 2 for one in instructions) == function["size"]
    targets = [one for one in instructions if "target" in one]
    at = {one["address"]: one for one in instructions}
    assert targets
    for target in targets:
        assert at[target["target"]]["label"] == target["target_label"]


def test_targets_of_a_bundle(fat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(fat), "--json"]) == 0
    assert {found["target"] for found in json.loads(capsys.readouterr().out)} == {"gfx942", "gfx1100"}
    assert main(["disasm", str(fat), "--target", "gfx1100", "--kernel", "loop"]) == 0
    out = capsys.readouterr().out
    assert "wave32" in out
    assert "gfx942" not in out.replace(str(fat), "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernel", "nothing"], "no kernel matches 'nothing'; choose from caller, loop"),
        (["--target", "gfx90a"], "no code object for gfx90a; choose from "),
        (["--target", "gfx1"], "unknown target 'gfx1'"),
    ],
)
def test_errors(fat: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["disasm", str(fat), *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_file_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF nonsense")
    assert main(["disasm", str(tmp_path / "x")]) == 1
    assert main(["disasm", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().out == ""


NAMES = ["k0", "k1", "k2"]


def sharing(wave_sizes: list[int]) -> CodeObject:
    """Kernels that begin at the same instruction, as linkers make them that fold equal code."""
    first = kernel_text(function("k0", ["v_mov_b32 v0, 0", "s_endpgm"]), "gfx1100", name="k0")
    start, end = first.index(".p2align 6\n.amdhsa"), first.index(".amdgpu_metadata")
    made, rows = "", ""
    for name in NAMES:
        made += first[start:end].replace("k0", name)
        rows += first[first.index("  - .name:") : first.index("...\n")].replace("k0", name)
    aliases = "".join(
        f".globl {name}\n.type {name},@function\n.set {name}, k0\n.size {name}, 8\n" for name in NAMES[1:]
    )
    text = first[:start].replace(".rodata", aliases + ".rodata") + made + first[end : first.index("  - .name:")] + rows
    object = assembled(text + "...\n.end_amdgpu_metadata\n", "gfx1100")
    data = bytearray(object.data)
    for name, wave_size in zip(NAMES, wave_sizes, strict=True):
        kernel = object.kernels[name]
        segment = next(s for s in object.segments if s.vaddr <= kernel.descriptor_address < s.vaddr + s.filesz)
        at = segment.offset + kernel.descriptor_address - segment.vaddr
        changed = replace(kernel.descriptor, enable_wavefront_size32=int(wave_size == 32))
        data[at : at + DESCRIPTOR_SIZE] = changed.encode()
    return CodeObject(bytes(data))


@pytest.mark.parametrize("chosen", [None, *NAMES, "k0 k2"])
@pytest.mark.parametrize("wave_sizes", [*itertools.product((32, 64), repeat=3)], ids=str)
def test_kernels_with_the_same_code(wave_sizes: tuple[int, ...], chosen: str | None) -> None:
    """All kernels are listed with their own wave sizes; a requested one comes first."""
    object = sharing([*wave_sizes])
    wanted = NAMES if chosen is None else chosen.split()
    kernels = [part for part in parts(object, None if chosen is None else wanted) if part.kernel]
    for part in kernels:
        names = [str(part.name), *part.aliases]
        assert part.name in wanted
        assert sorted(names) == [name for name, size in zip(NAMES, wave_sizes, strict=True) if size == part.wave_size]
        heading = f"<{part.name}>: // kernel, wave{part.wave_size}, 8 bytes, 2 instructions"
        also = f", also of {', '.join(part.aliases)}" if part.aliases else ""
        assert any(line.endswith(heading + also) for line in listing(object, wanted))
    assert {name for part in kernels for name in (part.name, *part.aliases)} >= {*wanted}
    assert len({part.wave_size for part in kernels}) == len(kernels)
