"""docs/extending.md: its names are in the named files, and its target, generation and verb work."""

from __future__ import annotations

import importlib
import re
import subprocess
from pathlib import Path

import pytest
from luthier.arch import targets
from luthier.arch.generation import Generation
from luthier.arch.gfx12 import GFX12
from luthier.arch.target import Target
from luthier.arch.targets import TARGETS
from luthier.cli.main import main
from luthier.errors import TargetError
from luthier.isa import Isa, TargetId
from luthier.objects import load_object

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
KINDS = (
    *("target", "generation", "hazard", "emulated operation", "intrinsic", "argument kind", "tool", "tool that ships"),
    *("report format", "rule of the report", "check", "option of a run", "verb"),
)

NO_SYMBOLS = {"luthier", "hip", "definition", "lower", "docs", "replace", "tools", "NAME", "verify", "NameError"}
"""Words set as code that are Luthier's or a reader's, but stand in none of the files."""


def block(section: str, language: str) -> str:
    """The first code block of a section, without the indentation of a step."""
    match = re.search(rf"^( *)```{language}\n(.*?)^ *```$", SECTIONS[section], re.M | re.S)
    assert match is not None
    return re.sub(f"^{match[1]}", "", match[2], flags=re.M)


def test_there_is_a_section_for_each_kind_of_thing() -> None:
    assert [title.partition(" ")[2] for title in SECTIONS] == list(KINDS)


@pytest.mark.parametrize("title", SECTIONS)
def test_symbols_are_where_it_says(title: str) -> None:
    """Names set as code in a paragraph occur in one of the files named in it or its section."""
    text = re.sub(r"^ *```.*?^ *```$", "", SECTIONS[title], flags=re.M | re.S)
    files = [ROOT / name for name in re.findall(r"`((?:runtime|luthier_build|tests|scripts)/[\w/.]+)`", text)]
    assert all(file.exists() for file in files)
    sources = "".join(
        path.read_text() for file in files for path in (file.rglob("*.py") if file.is_dir() else [file])
    ) + "".join(path.read_text() for path in (ROOT / "runtime/luthier/payload").glob("*.py"))
    for name in re.findall(r"`(?:\w+\.)*(_?[A-Za-z]\w+)=?`", text):
        if name not in NO_SYMBOLS:
            assert re.search(rf"\b{name}\b", sources), name


KERNEL = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.globl k
.type k,@function
k:
v_add_f16 v0.h, v1.l, v2.h
s_endpgm
.size k, .-k
.rodata
.p2align 6
.amdhsa_kernel k
.amdhsa_next_free_vgpr 3
.amdhsa_next_free_sgpr 1
.amdhsa_wavefront_size32 1
.end_amdhsa_kernel
"""


def table_without(name: str, *added: Target) -> targets.ProcessorTable:
    """Return the table without one processor and with additional ones."""
    return targets.ProcessorTable([*(one for one in TARGETS.values() if one.name != name), *added])


def use(table: targets.ProcessorTable, patch: pytest.MonkeyPatch) -> None:
    """Take this for Luthier's own."""
    patch.setattr(targets, "_OWN", table)
    targets._all.cache_clear()
    TargetId.parse.cache_clear()


@pytest.mark.parametrize("as_generation", [False, True])
def test_a_target(
    as_generation: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A processor added at run time, of a known generation or of a new one, lists and decodes."""
    source, object = tmp_path / "code.s", tmp_path / "code.o"
    source.write_text(KERNEL)
    llvm = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-mattr=+real-true16", "-filetype=obj"]
    subprocess.run([*llvm, source, "-o", object], check=True)
    subprocess.run(["ld.lld-22", "-shared", object, "-o", object], check=True)
    old, own, without = TARGETS["gfx1201"], targets._OWN, table_without("gfx1201")
    generation = GFX12
    if as_generation:
        generation = Generation(parent=GFX12, generation="GFX12_1", wave_sizes=(32,))
    new = Target(parent=generation, name="gfx1201", mach=0x4E, generic="gfx12-generic")
    with monkeypatch.context() as patch:
        use(without, patch)
        with pytest.raises(TargetError):
            load_object(object)
        use(table_without("gfx1201", new), patch)
        loaded = load_object(object)
        assert loaded.target.target is new is not old
        isa = Isa.of(loaded.target, 32)
        assert isa.texts(isa.decode(loaded.read(*loaded.text_ranges[0])))[:2] == [
            "v_add_f16_e32 v0.h, v1.l, v2.h",
            "s_endpgm",
        ]
        assert main(["disasm", str(object)]) == 0
        assert "v_add_f16_e32" in capsys.readouterr().out
        if as_generation:
            with pytest.raises(TargetError, match="no wave size 64"):
                Isa.of(loaded.target, 64)
        use(own, patch)


def test_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's command in a separate package."""
    package, info = tmp_path / "my_package", tmp_path / "my_package-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (mapping,) = re.findall(r"`(COMMANDS = \{.*?\})`", SECTIONS["A verb"])
    (package / "__init__.py").write_text(mapping)
    (package / "hello.py").write_text(block("A verb", "python"))
    (group,) = re.findall(r'entry-points\."([\w.]+)"', block("A verb", "toml"))
    (point,) = re.findall(r'^(\w+) = "(.*)"', block("A verb", "toml"), re.M)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{point[0]} = {point[1]}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    assert main(["hello", "there"]) == 0
    assert capsys.readouterr().out == "hello there\n"


def test_every_field_of_a_generation_says_what_it_is() -> None:
    source = (ROOT / "runtime/luthier/arch/generation.py").read_text()
    body = source[source.index("class Generation(") : source.index("    def __post_init__")]
    for name in Generation.__struct_fields__:
        assert re.search(rf'^    {name}: [^\n]+\n    """', body, re.M), name
