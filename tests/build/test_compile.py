"""Compiling device modules: what comes out, what is done again and what is not, and how errors look."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError
from luthier.module.embedded import read_object
from luthier.objects import load_objects

import luthier_build.precompiled as precompiled_module
import luthier_build.units as units_module
from luthier_build.compile import DeviceModule, compile_device, compile_modules
from luthier_build.package import compile_tool, remove_stale
from luthier_build.settings import ModuleSettings, Settings, load_settings
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

pytestmark = pytest.mark.rows()

TARGETS = ("gfx942", "gfx1100")
MakeProject = Callable[[Mapping[str, str]], Path]


def build(
    project: Path, toolchain: Toolchain, *sources: str, settings: Settings | None = None, lines: list[str] | None = None
) -> DeviceModule:
    with build_folder(project / "build") as folder:
        (made,) = compile_modules(
            [ModuleSettings("device", sources or ("device.hip",))],
            settings or Settings(targets=TARGETS),
            toolchain,
            project=project,
            folder=folder,
            report=(lines if lines is not None else []).append,
        )
    return made


def test_one_bundle_with_a_code_object_and_bitcode_for_every_target(
    hook: str, make_project: MakeProject, toolchain: Toolchain
) -> None:
    project = make_project({"device.hip": hook})
    lines: list[str] = []
    made = build(project, toolchain, lines=lines)
    assert made.compiled == TARGETS
    assert sorted(lines) == ["[1/2] device: compiling for gfx942", "[2/2] device: compiling for gfx1100"]

    listed = subprocess.run(
        [toolchain.bundler, "--list", "--type=o", f"--input={made.bundle}"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(listed) == {"host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{t}" for t in TARGETS)}
    for code_object in load_objects(made.bundle):
        assert code_object.data == made.objects[str(code_object.target)].read_bytes()
        bitcode = project / "embedded.bc"
        contents = read_object(code_object)
        assert contents.wave_sizes == code_object.target.target.wave_sizes
        bitcode.write_bytes(contents.bitcode)
        text = subprocess.run(["llvm-dis-22", bitcode, "-o", "-"], capture_output=True, text=True, check=True).stdout
        assert re.search(r"define .*void @count\(i32", text)
        assert f'"target-cpu"="{code_object.target.target.name}"' in text
    assert project / "device.hip" in made.dependencies
    assert any(path.name == "hip_runtime.h" for path in made.dependencies)


def changed(project: Path, toolchain: Toolchain, *sources: str, settings: Settings | None = None) -> tuple[str, ...]:
    return build(project, toolchain, *sources, settings=settings).compiled


def test_only_what_changed_is_compiled_again(
    hook: str, make_project: MakeProject, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = make_project(
        {"device.hip": '#include "inc/step.h"\n' + hook, "inc/step.h": "#define STEP 1\n", "unused.h": ""}
    )
    single = Settings(targets=("gfx942",))
    assert changed(project, toolchain, settings=single) == ("gfx942",)
    assert changed(project, toolchain, settings=single) == ()

    os.utime(project / "device.hip")
    (project / "unused.h").write_text("changed")
    assert changed(project, toolchain, settings=single) == ()  # neither contents nor inputs changed

    (project / "inc/step.h").write_text("#define STEP 2\n")
    assert changed(project, toolchain, settings=single) == ("gfx942",)
    assert changed(project, toolchain, settings=Settings(targets=("gfx942", "gfx90a"))) == ("gfx90a",)
    assert changed(project, toolchain, settings=Settings(targets=("gfx942",), defines=("EXTRA",))) == ("gfx942",)

    shutil.rmtree(tmp_path / "plugin", ignore_errors=True)
    original = units_module.plugin_for(toolchain)
    newer = tmp_path / "plugin.so"
    newer.write_bytes(original.read_bytes() + b"\0")  # another file, the same behaviour
    flags = units_module.plugin_flags(toolchain)
    with_extra = Settings(targets=("gfx942",), defines=("EXTRA",))
    monkeypatch.setattr(units_module, "plugin_for", lambda _: newer)
    monkeypatch.setattr(units_module, "plugin_flags", lambda _: [f.replace(str(original), str(newer)) for f in flags])
    assert changed(project, toolchain, settings=with_extra) == ("gfx942",)
    assert changed(project, toolchain, settings=with_extra) == ()
    newer.write_bytes(original.read_bytes() + b"\0\0")  # rebuilt in place
    assert changed(project, toolchain, settings=with_extra) == ("gfx942",)


def test_the_compiler_and_its_device_library_are_part_of_the_key(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update of the one or the other that says the same version."""
    monkeypatch.setattr(units_module, "plugin_for", lambda _: Path(__file__))
    monkeypatch.setattr(units_module, "plugin_flags", lambda _: [])
    monkeypatch.setattr(Toolchain, "device_flags", lambda *_: [])
    library = shutil.copytree(toolchain.device_library, tmp_path / "library")
    clang = tmp_path / "clang"

    def key_of(**changes: Path) -> str:
        changed = dataclasses.replace(toolchain, device_library=library, **changes)
        module, settings = ModuleSettings("device", ("device.hip",)), Settings(targets=("gfx942",))
        (unit,) = units_module.plan_units(module, settings, changed, project=tmp_path, headers=tmp_path)
        return unit.key

    keys = [key_of()]
    assert key_of() == keys[0]
    for name in ("ocml.bc", "ockl.bc"):
        (library / name).write_bytes(b"BC" + (library / name).read_bytes()[2:-1] + b"!")
        keys.append(key_of())
    os.utime(library / "ocml.bc")
    assert key_of() == keys[-1]
    for flag in ("-DN=5", "-DN=60", "-DN=6"):
        clang.write_text(f'#!/bin/sh\nexec {toolchain.clang} "$@" {flag}\n')
        clang.chmod(0o755)
        keys.append(key_of(clang=clang))
    assert len({*keys}) == len(keys) == 6


def test_files_that_cannot_be_read_are_not_what_a_build_left(tmp_path: Path) -> None:
    """As the lock of an editor, a link that leads nowhere."""
    (tmp_path / ".#__init__.py").symlink_to("ann@host.4711:1700000000")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "circle.py").symlink_to("circle.py")
    lines = list[str]()
    remove_stale(tmp_path, Settings(package="tool"), lines.append)
    assert lines == []
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("variable", ["CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"])
def test_variables_that_name_headers_are_part_of_the_key(
    make_project: MakeProject, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    project = make_project({"device.hip": ""})
    keys = set()
    for value in ("", "/one", "/two"):
        monkeypatch.setenv(variable, value)
        (unit,) = units_module.plan_units(
            ModuleSettings("device", ("device.hip",)),
            Settings(targets=("gfx942",)),
            toolchain,
            project=project,
            headers=project,
        )
        keys.add(unit.key)
    assert len(keys) == 3


def test_a_copied_folder_is_built_from_its_own_sources(
    hook: str, make_project: MakeProject, toolchain: Toolchain, tmp_path: Path
) -> None:
    project = make_project({"device.hip": hook})
    settings = Settings(targets=("gfx942",))
    before = build(project, toolchain, settings=settings).bundle.read_bytes()
    copy = shutil.copytree(project, tmp_path / "copy")
    (copy / "device.hip").write_text(hook + "__device__ int another;\n")
    after = build(copy, toolchain, settings=settings)
    assert after.compiled == ("gfx942",)
    assert after.bundle.read_bytes() != before
    assert build(project, toolchain, settings=settings).bundle.read_bytes() == before


def test_the_same_sources_give_the_same_bytes_in_any_folder(hook: str, toolchain: Toolchain, tmp_path: Path) -> None:
    text = hook + "LUTHIER_HOOK_ANNOTATE check(int v) { if (v < 0) *(volatile const char **)nullptr = __FILE__; }\n"
    contents = []
    for name in ("here", "somewhere/much deeper"):
        project = tmp_path / name
        project.mkdir(parents=True)
        (project / "device.hip").write_text(text)
        settings = load_settings({"modules": {"device": ["device.hip"]}, "targets": ["gfx942"], "package": "p"})
        (built,) = compile_tool(
            settings, project=project, destination=project / "out", toolchain=toolchain, report=lambda _: None
        )
        contents.append([path.read_bytes() for path in built.artefacts])
    assert contents[0] == contents[1]
    assert str(tmp_path).encode() not in contents[0][0]


@pytest.mark.thorough
def test_sources_of_one_module_are_one_unit(hook: str, make_project: MakeProject, toolchain: Toolchain) -> None:
    project = make_project({"common.hip": hook, "more.hip": "LUTHIER_HOOK_ANNOTATE twice(int a) { count(2 * a); }\n"})
    made = build(project, toolchain, "common.hip", "more.hip", settings=Settings(targets=("gfx942",)))
    (code_object,) = load_objects(made.bundle)
    manifest = embedded_manifest(code_object.section_data(".llvmbc") or b"")
    assert [hook["name"] for hook in manifest["hooks"]] == ["count", "twice"]


def embedded_manifest(bitcode: bytes) -> Mapping[str, list[Mapping[str, object]]]:
    start = bitcode.index(b'{"luthier":')
    value: Mapping[str, list[Mapping[str, object]]] = json.JSONDecoder().raw_decode(
        bitcode[start:].decode("utf-8", "replace")
    )[0]
    return value


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "version", "compress"),
    [
        ("gfx942:sramecc+:xnack-", 0, False),
        ("gfx90a:xnack+", 4, False),
        ("gfx1201", 5, True),
        ("gfx9-4-generic", 6, True),
    ],
)
def test_target_features_code_object_versions_and_compression(
    hook: str, make_project: MakeProject, toolchain: Toolchain, target: str, version: int, compress: bool
) -> None:
    settings = Settings(targets=(target,), code_object_version=version, compress=compress)
    made = build(make_project({"device.hip": hook}), toolchain, settings=settings)
    (code_object,) = load_objects(made.bundle)
    assert str(code_object.target) == target
    assert version in (0, code_object.abi)
    assert made.bundle.read_bytes().startswith(b"CCOB" if compress else b"__CLANG_OFFLOAD_BUNDLE__")


@pytest.mark.thorough
def test_the_same_source_with_the_compiler_of_debians_hipcc(
    hook: str, make_project: MakeProject, clang15: Toolchain
) -> None:
    made = build(make_project({"device.hip": hook}), clang15, settings=Settings(targets=("gfx90a", "gfx1030")))
    for code_object in load_objects(made.bundle):
        manifest = embedded_manifest(code_object.section_data(".llvmbc") or b"")
        assert [hook["name"] for hook in manifest["hooks"]] == ["count"]


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{hook}LUTHIER_HOOK_ANNOTATE bad() { nonsense(); }\n", r"device\.hip:8:31: error: use of undeclared"),
        ("{hook}LUTHIER_HOOK_ANNOTATE count(uint32_t step) {}\n", "error: redefinition of 'count'"),
        ("#include <hip/hip_runtime.h>\n__global__ void k() {}\n", "is MARK_LUTHIER_DEVICE_MODULE in the source"),
        ("#error not today\n", "error: not today"),
    ],
    ids=["syntax", "duplicate", "no module", "preprocessor"],
)
def test_compiler_errors_are_shown_and_leave_nothing_behind(
    hook: str, make_project: MakeProject, toolchain: Toolchain, source: str, message: str
) -> None:
    project = make_project({"device.hip": source.replace("{hook}", hook)})
    with pytest.raises(BuildError, match=message):
        build(project, toolchain)
    left = [path.name for path in (project / "build").rglob("*") if "include" not in path.parts]
    assert not [name for name in left if name.endswith((".hsaco", ".hipfb", ".d", ".record"))]
    (project / "device.hip").write_text(hook)
    assert changed(project, toolchain) == TARGETS


@pytest.mark.thorough
def test_an_interrupted_build_is_taken_up_where_it_stopped(
    hook: str, make_project: MakeProject, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project({"device.hip": hook})
    real = precompiled_module.run

    def interrupted(command: list[str], **rest: object) -> str:
        if "--offload-arch=gfx1100" in command and "-c" in command:
            # As a killed compiler leaves it.
            Path(command[command.index("-o") + 1]).write_bytes(b"half an obj")
            raise KeyboardInterrupt
        return real(command, **rest)  # type: ignore[arg-type]

    one_by_one = Settings(targets=TARGETS, jobs=1)
    with monkeypatch.context() as patch:
        patch.setattr(precompiled_module, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(project, toolchain, settings=one_by_one)
    assert not list((project / "build").rglob("*gfx1100*"))
    assert changed(project, toolchain, settings=one_by_one) == ("gfx1100",)


@pytest.mark.thorough
def test_a_damaged_intermediate_file_is_made_again(hook: str, make_project: MakeProject, toolchain: Toolchain) -> None:
    project = make_project({"device.hip": hook})
    made = build(project, toolchain)
    right = made.bundle.read_bytes()
    made.bundle.write_bytes(right[:100])
    made.objects["gfx942"].write_bytes(b"")
    again = build(project, toolchain)
    assert again.compiled == ("gfx942",)
    assert again.bundle.read_bytes() == right


def test_missing_sources_and_sources_outside_the_project(
    hook: str, make_project: MakeProject, toolchain: Toolchain
) -> None:
    project = make_project({"inner/device.hip": hook})
    with pytest.raises(BuildError, match=r"module 'device': source .*device\.hip does not exist"):
        build(project, toolchain)
    (project / "outside.hip").write_text(hook)
    settings = load_settings({"modules": {"device": ["../outside.hip"]}})
    with pytest.raises(BuildError, match=r"source \.\./outside\.hip lies outside the project"):
        compile_tool(settings, project=project / "inner", destination=project / "out", toolchain=toolchain)
    with pytest.raises(BuildError, match="no device modules"):
        compile_tool(Settings(), project=project, destination=project / "out", toolchain=toolchain)


@pytest.mark.thorough
def test_compilation_database_is_usable_without_the_plugin(
    hook: str, make_project: MakeProject, toolchain: Toolchain
) -> None:
    project = make_project({"device.hip": hook})
    build(project, toolchain, settings=Settings(targets=("gfx942",)))
    (row,) = json.loads((project / "build/compile_commands.json").read_text())
    assert row["file"] == str(project / "device.hip")
    assert not any("plugin" in argument for argument in row["arguments"])
    subprocess.run([*row["arguments"], "-fsyntax-only"], cwd=row["directory"], check=True, capture_output=True)


def test_compile_device_outside_a_project(hook: str, tmp_path: Path, toolchain: Toolchain) -> None:
    source = tmp_path / "my hooks.hip"
    source.write_text(hook)
    with build_folder(tmp_path / "b") as folder:
        made = compile_device([source], ["gfx942"], folder=folder, name="hooks", toolchain=toolchain)
    assert made.name == "hooks"
    assert len(load_objects(made.bundle)) == 1
