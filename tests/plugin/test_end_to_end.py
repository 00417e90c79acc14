"""HIP in, code object out: clang's output for a tool with the plugin, for several releases and targets."""

from __future__ import annotations

import base64
import os
import shutil
import struct
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from elftools.elf.elffile import ELFFile
from luthier.module import ToolModule

from luthier_build.plugin import include_dir, plugin_flags

pytestmark = pytest.mark.rows(1)

SOURCE = Path(__file__).with_name("tool.hip")
COMPILATIONS = [("gfx90a", "-O0"), ("gfx90a", "-O3"), ("gfx942", "-O3"), ("gfx1100", "-O2")]
HEADER = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n"
INTRINSICS = {
    "luthier::readReg.i32.i32",
    "luthier::readReg.i64.i32",
    "luthier::readReg.<4 x i32>.i32",  # float4
    "luthier::readReg.<3 x i32>.i32",  # float3
    "luthier::readReg.i16.i32",  # __half
    "luthier::readReg.i1.i32",
    "luthier::readReg.double.i32",
    "luthier::readReg.ptr.i32",
    "luthier::writeReg.i32.<4 x i32>",
    "luthier::writeReg.i32.<3 x i32>",
    "luthier::writeReg.i32.i16",
    "luthier::writeReg.i32.double",
    "luthier::writeReg.i32.ptr",
    "luthier::writeReg.i32.i32",
    "luthier::writeReg.i32.i64",
    "luthier::sAtomicAdd.i64.ptr.i64",
    "my::Probe::measure.i32.[2 x i32]",
}


def _command(release, target: str, source: Path, output: Path, *flags: str, plugin: bool = True) -> list[str]:
    toolchain = release.toolchain
    return [
        str(toolchain.clang),
        *toolchain.device_flags(target),
        *(plugin_flags(toolchain) if plugin else []),
        f"-I{include_dir()}",
        "-Wno-pass-failed",
        *("--cuda-device-only", "--no-gpu-bundle-output", "-cuid=1234"),
        *flags,
        *("-c", str(source), "-o", str(output)),
    ]


def _compile(release, target: str, source: Path, output: Path, *flags: str, plugin: bool = True) -> bytes:
    subprocess.run(_command(release, target, source, output, *flags, plugin=plugin), check=True, capture_output=True)
    return output.read_bytes()


def _skip_unknown(release, target: str) -> None:
    if target == "gfx942" and release.toolchain.llvm_major < 17:
        pytest.skip("clang 15 does not know gfx942")


def _section(path: Path, name: str) -> bytes:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(name)
        assert section is not None, name
        return bytes(section.data())


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "level"), COMPILATIONS)
def test_bitcode_is_complete(release, target: str, level: str, tmp_path: Path) -> None:
    _skip_unknown(release, target)
    path = tmp_path / "tool.hsaco"
    _compile(release, target, SOURCE, path, level)
    (contents,) = ToolModule.load(path)._contents
    bitcode = contents.bitcode
    assert _section(path, ".llvmbc") == bitcode + (contents.other.bitcode if contents.other else b"")

    (tmp_path / "tool.bc").write_bytes(bitcode)
    subprocess.run(["opt-22", "-passes=verify", "-disable-output", tmp_path / "tool.bc"], check=True)
    llvm.initialize_all_targets()
    module = llvm.parse_bitcode(bitcode)
    module.verify()

    functions = {function.name: function for function in module.functions}
    declared = {name for name in functions if "::" in name}
    assert declared >= INTRINSICS
    assert not any("%" in name for name in declared if name.startswith("luthier::"))
    assert all(functions[name].is_declaration for name in declared)
    for hook in ("everything", "nothing"):
        attributes = b" ".join(functions[hook].attributes)
        assert b"luthier_hook" in attributes
        assert b"alwaysinline" in attributes
        assert functions[hook].linkage is llvm.Linkage.external
    assert "__luthier_hook_handle_everything" not in functions
    assert not any("kernel" in name for name in functions)
    assert "asm sideeffect" not in str(module)

    variables = {variable.name: variable for variable in module.global_variables}
    assert all(
        variable.is_declaration or variable.linkage is llvm.Linkage.available_externally
        for name, variable in variables.items()
        if not name.startswith("__hip_cuid_")
    )
    assert not {"__luthier_reserved", "counter.managed"} & set(variables)
    assert {"counter", "managed_table", "device_variable", "scale", "_ZN2my5Probe4hitsE"} <= set(variables)


@pytest.mark.rows(1)
def test_manifest(release, manifest_of, tmp_path: Path) -> None:
    data = _compile(release, "gfx90a", SOURCE, tmp_path / "tool.hsaco", "-O2", "-g")
    assert data.count(b'{"luthier":') == 1  # found in the whole object, not only in the section
    manifest = manifest_of(data)
    assert manifest["luthier"] == 2
    assert manifest["llvm"].startswith(f"{release.toolchain.llvm_major}.")
    assert manifest["target"] == "gfx90a"
    assert bool(manifest["cuid"]) == (release.toolchain.llvm_major >= 18)

    hooks = {hook["name"]: hook for hook in manifest["hooks"]}
    assert list(hooks) == ["everything", "nothing"]
    everything = hooks["everything"]
    assert everything["file"].endswith("tool.hip")
    lines = SOURCE.read_text().splitlines()
    assert "LUTHIER_HOOK_ANNOTATE everything" in lines[everything["line"] - 1]
    assert [parameter["type"] for parameter in everything["parameters"]] == ["i32", "float", "i8", "i64", "ptr"]
    assert [parameter["name"] for parameter in everything["parameters"]] == [
        "reg",
        "factor",
        "small",
        "mask",
        "pointer",
    ]
    assert [parameter.get("signed") for parameter in everything["parameters"]] == [True, None, False, False, None]

    variables = {variable["name"]: variable for variable in manifest["variables"]}

    def contents(name: str) -> bytes:
        return base64.b64decode(variables[name]["bytes"])

    assert variables["counter"]["managed"]
    assert contents("counter") == struct.pack("<Q", 5)
    assert contents("managed_table") == struct.pack("<3i", 1, 2, 3)
    assert (variables["managed_table"]["size"], variables["managed_table"]["align"]) == (12, 4)
    assert contents("device_variable") == struct.pack("<i", 7)
    assert contents("scale") == struct.pack("<f", 2.5)
    assert variables["scale"]["constant"]
    assert contents("_ZN2my5Probe4hitsE") == struct.pack("<Q", 1)
    assert contents("_ZL6lookup") == struct.pack("<4h", 1, 10, 100, 1000)
    assert variables["shared"]["address_space"] == 3
    assert not {"__luthier_reserved", "counter.managed"} & set(variables)


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "level"), COMPILATIONS)
def test_original_is_untouched(release, target: str, level: str, tmp_path: Path) -> None:
    """Every loaded byte, and every symbol and section but one, is the same with and without the plugin."""
    _skip_unknown(release, target)
    path, plain = tmp_path / "with.hsaco", tmp_path / "without.hsaco"
    _compile(release, target, SOURCE, path, level)
    _compile(release, target, SOURCE, plain, level, plugin=False)

    def contents(name: Path) -> dict[str, bytes]:
        with name.open("rb") as file:
            return {section.name: section.data() for section in ELFFile(file).iter_sections()}

    ours, original = contents(path), contents(plain)
    assert set(ours) - set(original) == {".llvmbc"}
    for name in set(original) - {".shstrtab", ".symtab", ".strtab"}:  # not loaded; compared below
        assert ours[name] == original[name], name

    def symbols(name: Path) -> list[tuple[str, int, int]]:
        with name.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            return [
                (symbol.name, symbol["st_value"], symbol["st_size"])
                for symbol in table.iter_symbols()
                if symbol.name != "luthier.embedded.bitcode"  # older releases give private data a local symbol
            ]

    assert symbols(path) == symbols(plain)
    with path.open("rb") as file:
        elf = ELFFile(file)
        embedded = elf.get_section_by_name(".llvmbc")
        assert embedded["sh_flags"] == 0  # not allocated
        assert not any(segment.section_in_segment(embedded) for segment in elf.iter_segments())


@pytest.mark.thorough
def test_host_code_and_other_device_code(release, tmp_path: Path) -> None:
    """In a whole HIP compilation the host object is the same, and device code of no tool gains nothing."""
    source = tmp_path / "app.hip"
    source.write_text("#include <hip/hip_runtime.h>\n__global__ void kernel(int *p) { *p = 1; }\n")
    outputs = []
    for flags in ([], plugin_flags(release.toolchain)):
        output = tmp_path / f"app{len(outputs)}.o"
        command = [
            *(release.toolchain.clang, *release.toolchain.device_flags("gfx90a"), *flags, "-O2", "-cuid=1"),
            *("-c", source, "-o", output),
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
        outputs.append(output.read_bytes())
    assert outputs[0] == outputs[1]


def _refused(release, text: str, tmp_path: Path, *flags: str) -> str:
    source = tmp_path / "bad.hip"
    source.write_text(HEADER + text)
    done = subprocess.run(
        _command(release, "gfx90a", source, tmp_path / "bad.hsaco", "-O2", *flags), capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert not (tmp_path / "bad.hsaco").exists()
    return done.stderr


@pytest.mark.rows(1)
def test_inline_assembly_is_refused_by_file_and_line(release, tmp_path: Path) -> None:
    errors = _refused(
        release,
        '__device__ void helper() {\n  __asm__ volatile("s_nop 0");\n}\nLUTHIER_HOOK_ANNOTATE hook() { helper(); }\n',
        tmp_path,
    )
    assert "bad.hip:5:" in errors
    assert "inline assembly is not allowed in hooks" in errors


@pytest.mark.rows(1)
def test_rdc_is_refused(release, tmp_path: Path) -> None:
    errors = _refused(release, "LUTHIER_HOOK_ANNOTATE hook() {}\n", tmp_path, "-fgpu-rdc")
    assert "-fgpu-rdc" in errors
    assert "link time" in errors


@pytest.mark.rows(1)
def test_plugin_given_twice_is_refused(release, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    shutil.copy(release.plugin, copy)
    errors = _refused(release, "LUTHIER_HOOK_ANNOTATE hook() {}\n", tmp_path, "-Xarch_device", f"-fpass-plugin={copy}")
    assert "already carries embedded bitcode" in errors


@pytest.mark.rows(1)
def test_plugin_of_another_release_is_refused(release, tmp_path: Path) -> None:
    """clang says so itself; nothing is written."""
    compilers = [name for name in ("clang-15", "clang-19", "clang-22") if shutil.which(name)]
    other = next((name for name in compilers if name != f"clang-{release.toolchain.llvm_major}"), None)
    if other is None:
        pytest.skip("one release of clang is installed")
    source = tmp_path / "any.c"
    source.write_text("int x;\n")
    done = subprocess.run(
        [other, f"-fpass-plugin={release.plugin}", "-c", source, "-o", tmp_path / "any.o"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "plugin" in done.stderr


def test_plugin_is_in_dependency_files(release22, tmp_path: Path) -> None:
    depfile = tmp_path / "tool.d"
    flags = ["-Xclang", "-dependency-file", "-Xclang", str(depfile), "-Xclang", "-MT", "-Xclang", "tool"]
    _compile(release22, "gfx90a", SOURCE, tmp_path / "tool.hsaco", "-O0", *flags)
    assert str(release22.plugin) in depfile.read_text()


@pytest.mark.thorough
def test_ccache_sees_a_new_plugin(release22, tmp_path: Path) -> None:
    """The same command with a plugin of other contents must not be answered from the cache."""
    ccache = shutil.which("ccache")
    if not ccache:
        pytest.skip("ccache is not installed")
    plugin = tmp_path / "plugin.so"
    shutil.copy(release22.plugin, plugin)
    command = [
        part.replace(str(release22.plugin), str(plugin))
        for part in _command(release22, "gfx90a", SOURCE, tmp_path / "tool.hsaco", "-O0")
    ]
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache"), "CCACHE_STATSLOG": str(tmp_path / "log")}

    def result() -> str:
        (tmp_path / "log").unlink(missing_ok=True)
        subprocess.run([ccache, *command], check=True, env=environment, capture_output=True)
        return (tmp_path / "log").read_text()

    result()
    assert "cache_hit" in result()
    with plugin.open("ab") as file:
        file.write(b"\0")
    os.utime(plugin)
    assert "cache_hit" not in result()


@pytest.mark.thorough
def test_debian_hipcc(release15, manifest_of, tmp_path: Path) -> None:
    """The tool, built by Debian's hipcc for two targets at once with nothing but flags added."""
    hipcc = shutil.which("hipcc")
    if not hipcc or not Path("/usr/bin/clang++-15").exists():
        pytest.skip("Debian's hipcc is not installed")
    output = tmp_path / "tool.o"
    subprocess.run(
        [
            *(hipcc, "--offload-arch=gfx90a", "--offload-arch=gfx1030", *plugin_flags(release15.toolchain)),
            *(f"-I{include_dir()}", "-c", SOURCE, "-o", output),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "HIP_PLATFORM": "amd"},
    )
    fatbin = _section(output, ".hip_fatbin")
    assert fatbin.count(b'{"luthier":') == 3  # gfx1030 has both wave sizes
    assert manifest_of(fatbin)["llvm"].startswith("15.")
