"""The typed stub of a device module: what a type checker and a reader see."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError
from luthier.isa.targets import TargetId
from luthier.module import DeviceContents, DeviceVariable, Hook, ModuleManifest, Parameter, ToolModule

from luthier_build.manifest import make_manifest
from luthier_build.package import compile_tool
from luthier_build.settings import load_settings
from luthier_build.stubs import GENERATED, python_module, stub
from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).parents[2]
MakeProject = Callable[[Mapping[str, str]], Path]

HOOKS = (
    Hook("count", "count", (Parameter("step", "uint32_t", "uint", 4, "i32"),), 'Says """hi""" and C:\\new.\n\nMore.'),
    Hook("quiet", "quiet", (), targets=("gfx942",)),
    Hook("odd<int>", "_Z3oddIiEvv", ()),
    Hook("Tool::member", "_ZN4Tool6memberEv", ()),
    Hook("Tool::both", "_ZN4Tool4bothEv", ()),
    Hook("Other::both", "_ZN5Other4bothEv", ()),
)
VARIABLES = (
    DeviceVariable("total", "total", "uint64_t", 8, True, False, "Where\nit goes."),
    DeviceVariable("scale", "scale", "float", 4, False, True),
    DeviceVariable("blob", "blob", "", 12, False, False),
)
MANIFEST = ModuleManifest(
    "tool", "device", "device.hipfb", ("gfx942", "gfx1100"), HOOKS, VARIABLES, (), "", "22.1", "clang"
)


def test_stub_text() -> None:
    text = stub(MANIFEST)
    tree = ast.parse(text)
    docs = {}
    for item, following in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(item.target, ast.Name)
            docs[item.target.id] = ast.literal_eval(following.value)
    assert docs == {
        "variables": "``total``: managed uint64_t, 8 bytes. Where it goes.\n``scale``: constant float, 4 bytes.\n"
        "``blob``: bytes, 12 bytes.\n",
        "count": '``count(uint32_t step)``\n\nSays """hi""" and C:\\new.\n\nMore.\n',
        "quiet": "``quiet()``\n\nOnly for gfx942.\n",
        "member": "``Tool::member()``",
    }
    ast.parse(python_module(MANIFEST))
    assert GENERATED in text


@pytest.mark.thorough
def test_a_type_checker_knows_the_hooks(tmp_path: Path) -> None:
    package = tmp_path / "tool"
    package.mkdir()
    (package / "py.typed").write_text("")
    (package / "__init__.py").write_text("")
    (package / "device.py").write_text(python_module(MANIFEST))
    (package / "device.pyi").write_text(stub(MANIFEST))
    user = tmp_path / "user.py"
    user.write_text("from tool import device\nreveal_type(device.count)\ndevice.coutn\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", user],
        cwd=tmp_path,
        env={"MYPYPATH": f"{tmp_path}:{ROOT / 'runtime'}", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
    ).stdout
    note, error = (line.partition(": ")[2] for line in done.splitlines() if line.startswith("user.py:"))
    assert note == 'note: Revealed type is "luthier.module.description.Hook"'
    assert error.startswith('error: Module has no attribute "coutn"')


def test_a_file_of_that_name_is_not_replaced(hook: str, make_project: MakeProject, toolchain: Toolchain) -> None:
    project = make_project({"device.hip": hook, "tool/__init__.py": ""})
    settings = load_settings({"package": "tool", "targets": ["gfx942"], "modules": {"device": ["device.hip"]}})
    for suffix in ("hipfb", "json", "py", "pyi"):
        own = project / f"tool/device.{suffix}"
        own.write_text("mine = 1\n")
        with pytest.raises(BuildError, match=rf"device\.{suffix} exists and would be replaced"):
            compile_tool(settings, project=project, destination=project / "tool", toolchain=toolchain)
        assert own.read_text() == "mine = 1\n"
        own.unlink()
    for _ in range(2):
        compile_tool(settings, project=project, destination=project / "tool", toolchain=toolchain)


def test_a_hook_that_is_a_python_keyword_is_in_no_stub_but_can_be_found(
    make_project: MakeProject, toolchain: Toolchain
) -> None:
    """``lambda`` and ``None`` are names in C++; as attributes they would make the stub a syntax error."""
    head = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n"
    names = ("lambda", "None", "_private", "plain", "match")
    project = make_project({"device.hip": head + "".join(f"LUTHIER_HOOK_ANNOTATE {name}() {{}}\n" for name in names)})
    settings = load_settings({"package": "tool", "targets": ["gfx942"], "modules": {"device": ["device.hip"]}})
    (built,) = compile_tool(
        settings, project=project, destination=project / "out", toolchain=toolchain, report=lambda _: None
    )
    tree = ast.parse((project / "out/device.pyi").read_text())
    declared = {item.target.id for item in tree.body if isinstance(item, ast.AnnAssign)}  # type: ignore[union-attr]
    assert declared == {"hooks", "variables", "targets", "plain", "match"}
    assert {hook.name for hook in built.manifest.hooks} == set(names)
    module = ToolModule.load(project / "out/device.hipfb")
    assert all(module.hook(name).name == name for name in names)


@pytest.mark.parametrize("name", ["name", *sorted(name for name in dir(ToolModule) if not name.startswith("_"))])
def test_a_hook_cannot_hide_behind_an_attribute_of_its_module(name: str) -> None:
    hook = Hook(name, name, (), location="device.hip:7")
    contents = DeviceContents(TargetId.parse("gfx942"), (hook,), (), (), "", "22.1")
    with pytest.raises(BuildError, match=f"device.hip:7: hook '{name}' has the name of an attribute"):
        make_manifest("tool", "device", "device.hipfb", "clang", [contents], {})
