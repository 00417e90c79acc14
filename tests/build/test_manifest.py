"""The manifest: what the compiled objects and the sources say, put together; and reading it back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from luthier.errors import BuildError, ToolError
from luthier.module import DeviceVariable, Hook, ModuleManifest, Parameter
from luthier.module.embedded import plain_name

import luthier_build.sources as sources_module
from luthier_build.package import compile_tool
from luthier_build.settings import load_settings
from luthier_build.sources import clean_comment
from luthier_build.toolchain import Toolchain

MakeProject = Callable[[Mapping[str, str]], Path]

SOURCE = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
enum class Kind : uint8_t { load, store };
using lanes_t = uint64_t;
typedef float float8 __attribute__((ext_vector_type(8)));

/** Where it all goes. */
__managed__ uint64_t total = 0;
__device__ uint32_t table[256];
__constant__ float scale = 2.5f;
namespace deep { namespace er { __device__ int level; } }
struct Holder { static __device__ short held; };
__device__ short Holder::held = 3;

/// Everything that can be passed.
///
///   indented
LUTHIER_HOOK_ANNOTATE everything(bool flag, int8_t small, uint16_t medium, int number, lanes_t lanes, float real,
                                 double precise, _Float16 half, const uint32_t *where, Kind kind, float8 vector) {
  luthier::sAtomicAdd<uint64_t>(&total, lanes + number + medium + small + flag + int(kind));
  table[*where & 255] += uint32_t(real * scale + precise + half + vector[3]) + deep::er::level + Holder::held;
}
// not documentation
LUTHIER_HOOK_ANNOTATE nothing() { luthier::writeReg<uint32_t>(0, luthier::readReg<uint32_t>(0)); }
"""


def build(
    project: Path,
    toolchain: Toolchain,
    targets: list[str],
    source: str = "device.hip",
    flags: Sequence[str] = (),
) -> ModuleManifest:
    settings = load_settings({"package": "tool", "targets": targets, "flags": flags, "modules": {"device": [source]}})
    (built,) = compile_tool(
        settings, project=project, destination=project / "out", toolchain=toolchain, report=lambda _: None
    )
    assert ModuleManifest.read(project / "out/device.json") == built.manifest
    return built.manifest


def test_everything_is_described(make_project: MakeProject, toolchain: Toolchain) -> None:
    manifest = build(make_project({"device.hip": SOURCE}), toolchain, ["gfx942", "gfx1100"])
    assert (manifest.package, manifest.module, manifest.bundle) == ("tool", "device", "device.hipfb")
    assert manifest.targets == ("gfx942", "gfx1100")
    assert manifest.llvm.partition(".")[0] == str(toolchain.llvm_major)
    assert manifest.compiler in toolchain.version
    everything, nothing = manifest.hooks
    assert everything.documentation == "Everything that can be passed.\n\n  indented"
    assert everything.location == "device.hip:19:23"
    assert everything.parameters == (
        Parameter("flag", "bool", "bool", 1, "i1"),
        Parameter("small", "int8_t", "int", 1, "i8"),
        Parameter("medium", "uint16_t", "uint", 2, "i16"),
        Parameter("number", "int", "int", 4, "i32"),
        Parameter("lanes", "lanes_t", "uint", 8, "i64"),
        Parameter("real", "float", "float", 4, "float"),
        Parameter("precise", "double", "float", 8, "double"),
        Parameter("half", "_Float16", "float", 2, "half"),
        Parameter("where", "const uint32_t *", "pointer", 8, "ptr"),
        Parameter("kind", "Kind", "uint", 1, "i8"),
        Parameter("vector", "float8", "vector", 32, "<8 x float>"),
    )
    assert nothing == Hook("nothing", "nothing", (), "", "device.hip:25:23")
    assert {variable.name: variable for variable in manifest.variables} == {
        "total": DeviceVariable("total", "total", "uint64_t", 8, True, False, "Where it all goes.", "device.hip:9:22"),
        "table": DeviceVariable("table", "table", "uint32_t[256]", 1024, False, False, "", "device.hip:10:21"),
        "scale": DeviceVariable("scale", "scale", "float", 4, False, True, "", "device.hip:11:20"),
        "deep::er::level": DeviceVariable(
            "deep::er::level", "_ZN4deep2er5levelE", "int", 4, False, False, "", "device.hip:12:48"
        ),
        "Holder::held": DeviceVariable(
            "Holder::held", "_ZN6Holder4heldE", "short", 2, False, False, "", "device.hip:14:26"
        ),
    }
    assert set(manifest.intrinsics) == {
        "luthier::readReg.i32.i32",
        "luthier::sAtomicAdd.i64.ptr.i64",
        "luthier::writeReg.i32.i32",
    }


def test_without_libclang_the_bitcode_alone_is_enough(
    make_project: MakeProject, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "available", lambda: False)
    manifest = build(make_project({"device.hip": SOURCE}), toolchain, ["gfx942"])
    everything = next(hook for hook in manifest.hooks if hook.name == "everything")
    assert [p.llvm for p in everything.parameters[:3]] == ["i1", "i8", "i16"]
    assert [(p.name, p.type, p.kind, p.size) for p in everything.parameters[:2]] == [
        ("arg0", "i1", "bool", 1),
        ("arg1", "i8", "int", 1),
    ]
    assert {variable.name for variable in manifest.variables} == {
        *("total", "table", "scale", "deep::er::level", "Holder::held")
    }


def test_the_sources_are_read_where_they_are_compiled(
    make_project: MakeProject, toolchain: Toolchain, hook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not in the folder that the build was started from, which has other types."""
    text = "#include <step.h>\n" + hook.replace("uint32_t step", "step_t step")
    project = make_project({"device.hip": text, "inc/step.h": "typedef unsigned step_t;\n"})
    (tmp_path / "other/inc").mkdir(parents=True)
    (tmp_path / "other/inc/step.h").write_text("typedef float step_t;\n")
    monkeypatch.chdir(tmp_path / "other")
    manifest = build(project, toolchain, ["gfx942"], flags=["-isystem", "inc"])
    assert manifest.hooks[0].parameters == (Parameter("step", "step_t", "uint", 4, "i32"),)


def test_what_libclang_does_not_understand_is_reported_and_nothing_of_it_used(
    tmp_path: Path, toolchain: Toolchain
) -> None:
    source = tmp_path / "device.hip"
    source.write_text("typedef missing_t step_t;\nint count(step_t step);\n")
    lines: list[str] = []
    arguments = toolchain.device_flags("gfx942")
    assert sources_module.read_declarations(toolchain, arguments, source, tmp_path, lines.append) == {}
    assert lines == [
        "device.hip:1:9: hooks are described by LLVM types, because libclang reports an error: "
        "unknown type name 'missing_t'"
    ]


def test_names_and_comments_that_are_no_utf8(make_project: MakeProject, toolchain: Toolchain, hook: str) -> None:
    name = "d\udce9vice.hip"
    project = make_project({name: ""})
    (project / name).write_bytes(hook.replace("/// Counts.", "/// Zählt.").encode("latin-1"))
    (built,) = build(project, toolchain, ["gfx942"], name).hooks
    assert built.documentation == "Z\ufffdhlt."
    assert built.location == "d\ufffdvice.hip:7:23"


def test_a_foreign_module_called_clang_is_no_libclang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "clang.cindex", raising=False)
    monkeypatch.setitem(sys.modules, "clang", ModuleType("clang"))
    assert not sources_module.available()


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("parameter", "shown"),
    [
        ("Pair pair", "'Pair'"),
        ("int &reference", "'int &'"),
        ("__int128 wide", "'__int128'"),
        ("Pair &&p", "'Pair &&'"),
    ],
)
def test_a_parameter_that_cannot_be_passed_is_named_with_its_place(
    make_project: MakeProject, toolchain: Toolchain, hook: str, parameter: str, shown: str
) -> None:
    text = hook + f"struct Pair {{ long a, b; }};\nLUTHIER_HOOK_ANNOTATE wrong(int fine, {parameter}) {{}}\n"
    project = make_project({"device.hip": text})
    with pytest.raises(BuildError) as caught:
        build(project, toolchain, ["gfx942"])
    name = parameter.split()[-1].lstrip("&")
    assert caught.value.message.startswith("device.hip:9:")
    assert f"parameter {name!r} of hook wrong has type {shown}" in caught.value.message
    assert not (project / "out").exists()


def test_a_comment_changes_the_manifest_and_nothing_else(
    make_project: MakeProject, toolchain: Toolchain, hook: str
) -> None:
    project = make_project({"device.hip": hook})
    assert build(project, toolchain, ["gfx942"]).hooks[0].documentation == "Counts."
    before = (project / "out/device.hipfb").stat().st_mtime_ns
    (project / "device.hip").write_text(hook.replace("/// Counts.", "/// Counts better."))
    assert build(project, toolchain, ["gfx942"]).hooks[0].documentation == "Counts better."
    assert (project / "out/device.hipfb").stat().st_mtime_ns == before


def test_a_hook_of_some_targets_only(make_project: MakeProject, toolchain: Toolchain, hook: str) -> None:
    text = hook + "#if !defined(__GFX11__)\nLUTHIER_HOOK_ANNOTATE early() {}\n#endif\n"
    manifest = build(make_project({"device.hip": text}), toolchain, ["gfx942", "gfx1100"])
    assert {item.name: item.targets for item in manifest.hooks} == {"count": (), "early": ("gfx942",)}


def test_a_hook_that_differs_between_targets_is_refused(
    make_project: MakeProject, toolchain: Toolchain, hook: str
) -> None:
    text = hook + "#ifdef __GFX11__\n#define T int\n#else\n#define T float\n#endif\nLUTHIER_HOOK_ANNOTATE two(T a) {}\n"
    with pytest.raises(BuildError, match="parameters of hook two differ"):
        build(make_project({"device.hip": text}), toolchain, ["gfx942", "gfx1100"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: [], "not a manifest"),
        (lambda raw: {**raw, "format": "other"}, "not a manifest"),
        (lambda raw: {**raw, "version": 99, "luthier": "9.9"}, "written by luthier 9.9.*update luthier"),
        (lambda raw: {key: value for key, value in raw.items() if key != "hooks"}, "damaged manifest: 'hooks'"),
        (lambda raw: {**raw, "variables": [{"name": "x"}]}, "damaged manifest"),
        (lambda raw: {**raw, "hooks": 3}, "damaged manifest"),
    ],
)
def test_reading_a_damaged_manifest(
    tmp_path: Path, change: Callable[[dict[str, object]], object], message: str
) -> None:
    good = ModuleManifest("p", "m", "m.hipfb", ("gfx942",), (), (), (), "", "22.1", "clang")
    path = tmp_path / "m.json"
    path.write_text(good.to_json())
    assert ModuleManifest.read(path) == good
    path.write_text(json.dumps(change(json.loads(good.to_json()))))
    with pytest.raises(ToolError, match=message):
        ModuleManifest.read(path)
    path.write_text("{")
    with pytest.raises(ToolError, match="not a manifest"):
        ModuleManifest.read(path)
    with pytest.raises(ToolError, match="cannot read manifest"):
        ModuleManifest.read(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("counter", "counter"),
        ("_ZN1a1bE", "a::b"),
        ("_ZL5local", "local"),
        ("_ZN2nsL5localE", "ns::local"),
        ("_ZN1aIiE1bE", "_ZN1aIiE1bE"),  # templates stay as they are
        ("_Z", "_Z"),
        ("_Znot", "_Znot"),
    ],
)
def test_plain_names_of_variables(symbol: str, name: str) -> None:
    assert plain_name(symbol) == name


def test_comments() -> None:
    assert clean_comment("/// One.\n/// Two.") == "One.\nTwo."
    assert clean_comment("/** One.\n *\n *  Two.\n */") == "One.\n\nTwo."
    assert clean_comment("//! One.") == "One."
    assert clean_comment("///< After.") == "After."
    assert clean_comment("// ordinary") == ""
    assert clean_comment("/* ordinary */") == ""
    assert clean_comment("") == ""
