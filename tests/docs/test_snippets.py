"""Code in documents that no other test runs, as a reader would type it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import luthier
import numpy as np
import pytest
from luthier.cli.main import main
from luthier.emulator.inspection.checks import CheckWarning
from luthier.errors import LuthierError
from luthier.projection import read_machine

from luthier_build.compile import compile_application, compile_device
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[2]
SAXPY = """
#include <hip/hip_runtime.h>
extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}
"""
EXECUTED_ELSEWHERE = {
    "README.md": "test_documents.py",
    "docs/api.md": "test_documents.py",
    "docs/building.md": "../build/test_inline.py",
    "docs/emulator.md": "test_documents.py",
    "docs/extending.md": "test_extending.py",
    "docs/hooks.md": "test_hooks.py",
    "docs/porting.md": "test_porting.py",
    "docs/recipes.md": "test_recipes.py",
    "docs/results.md": "../report/test_opened.py",
    "docs/tools.md": "../tools/test_documents.py",
    "docs/tutorial.md": "test_tutorial.py",
    "docs/writing-tools.md": "test_documents.py",
}


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def saxpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels with the names in documents, with debug information."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saxpy.hip").write_text(SAXPY)
    flags = ["-gline-tables-only"]
    compile_application(tmp_path / "saxpy.hip", "gfx90a", tmp_path / "app", flags=flags)
    compile_application(tmp_path / "saxpy.hip", "gfx942", tmp_path / "saxpy.hsaco", flags=flags)
    (tmp_path / "gemm.hip").write_text(SAXPY.replace("void saxpy", "void gemm"))
    compile_application(tmp_path / "gemm.hip", "gfx942", tmp_path / "kernels.co")
    return tmp_path


def run(document: str, block: str, **names: Any) -> dict[str, Any]:
    """Execute Python of a document and return the names that it defines."""
    exec(compile(block, document, "exec"), names)
    return names


def test_every_document_with_python_or_hip_is_executed() -> None:
    """Documents that are not run here are run by a test that names them."""
    source = Path(__file__).read_text()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/*/README.md")]:
        name = path.relative_to(ROOT).as_posix()
        if blocks(name, "python") or blocks(name, "cpp"):
            where = EXECUTED_ELSEWHERE.get(name)
            text = source if where is None else (Path(__file__).parent / where).read_text()
            assert Path(name).name in text.replace(str(EXECUTED_ELSEWHERE), ""), name


def test_checking(saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/checking.md: a compiled kernel has no findings, one without its waits has."""
    waits, device, hazards = blocks("docs/checking.md", "python")
    assert run("checking.md", waits)["report"].instructions > 10
    assert run("checking.md", hazards)["report"].findings == ()
    assert capsys.readouterr().out == ""
    for line in "".join(blocks("docs/checking.md", "sh")).splitlines():
        command = line.replace("libapp.so", "kernels.co").replace("'gemm*'", "gemm*").split()
        assert main(command[1:]) == 0

    code = bytearray((saxpy / "kernels.co").read_bytes())
    kernel = luthier.lift("kernels.co", "gemm")
    removed = [one for one in kernel.instructions if one.mnemonic == "s_waitcnt"]
    for removed_line in removed:
        code[removed_line.offset : removed_line.offset + 4] = kernel.object.target.target.s_nop
    (saxpy / "kernels.co").write_bytes(code)
    assert run("checking.md", waits)["report"].findings
    assert "kernels.co" not in capsys.readouterr().err
    checked = run("checking.md", device)["device"]
    y, x = np.ones(256, np.float32), np.ones(256, np.float32)
    with pytest.warns(CheckWarning, match="missing-wait in gemm"), contextlib.suppress(LuthierError):
        checked.load(bytes(code)).kernel("gemm").launch(y, x, 2.0, 256, grid=1, block=256)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_annotations(compiler: str, tmp_path: Path) -> None:
    """docs/sanitize.md: the functions do nothing without Luthier, in C and C++."""
    (block,) = blocks("docs/sanitize.md", "cpp")
    head, body = block.split("\n", 1)
    source = tmp_path / ("a.c" if compiler == "gcc" else "a.cpp")
    source.write_text(
        f"{head}\nint main(void) {{\n  char place[8] = {{0}};\n  size_t bytes = sizeof place;\n{body}  return 0;\n}}\n"
    )
    include = Path(luthier.__file__).parent / "include"
    flags = ["-Wall", "-Werror", f"-I{include}", "-ldl"]
    subprocess.run([compiler, source, *flags, "-o", tmp_path / "a"], check=True)
    subprocess.run([tmp_path / "a"], check=True)


def test_projected_times(saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/projection.md: a copy is measured and projected; a machine of a user's own differs in its clock."""
    (code,), (machine,) = (blocks("docs/projection.md", language) for language in ("python", "toml"))
    (saxpy / "vcopy.hip").write_text(
        '#include <hip/hip_runtime.h>\nextern "C" __global__ void vcopy(const double *a, double *b) {\n'
        "  b[blockIdx.x * blockDim.x + threadIdx.x] = a[blockIdx.x * blockDim.x + threadIdx.x];\n}\n"
    )
    compile_application(saxpy / "vcopy.hip", "gfx90a", saxpy / "vcopy.hsaco")
    names = run("projection.md", code, a=np.ones(1 << 20), b=np.zeros(1 << 20))
    time, bound = capsys.readouterr().out.split()
    assert (float(time) > 10, bound) == (True, "memory")
    (saxpy / "mine.toml").write_text(machine)
    slower = read_machine(saxpy / "mine.toml")
    assert (slower.clock.value, slower.compute_units) == (1500, names["machine"].compute_units)


def test_source_lines(saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/source.md: instructions say their lines, inlined ones the call's as well."""
    (block,) = blocks("docs/source.md", "python")
    run("source.md", block)
    printed = capsys.readouterr().out
    assert "saxpy.hip:6" in printed
    assert re.search(r", inlined at \S*saxpy\.hip:4:", printed)


def test_the_emulators_operations_and_debugger(saxpy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """runtime/luthier/emulator/README.md: an operation is declared, a kernel debugged to its end."""
    operation, debugger = blocks("runtime/luthier/emulator/README.md", "python")
    kernel = luthier.lift("saxpy.hsaco", "saxpy")
    (store,) = (one.address for one in kernel.instructions if one.mnemonic == "global_store_dword")
    debugger = debugger.replace("offset=0x40", f"offset={store - kernel.kernel.entry}")
    (added,) = run("emulator/README.md", operation)["operations"]
    assert added.names == ("v_add_u32", "v_add_nc_u32")
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    debugger = debugger.replace("memory(address", "memory(device.allocate(64).address")
    names = {"luthier": luthier, "np": np}
    run("emulator/README.md", debugger, **names, x=y, y=x, n=1000)
    assert "EXEC" in capsys.readouterr().out
    assert np.array_equal(y, 2 * x + 1)


def test_the_compiler_plugin(saxpy: Path) -> None:
    """compiler_plugin/README.md: built by hand it embeds the manifest, which reads as shown; an intrinsic is one."""
    (shell,), (manifest,), (intrinsic,) = (blocks("compiler_plugin/README.md", one) for one in ("sh", "python", "cpp"))
    source = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n" + intrinsic
    source += "__device__ int kept;\nLUTHIER_HOOK_ANNOTATE swap(int a) { kept = my::laneSwap<int>(a, 1); }\n"
    (saxpy / "tool.hip").write_text(source)
    with build_folder(saxpy / "build") as held:
        built = compile_device([saxpy / "tool.hip"], ["gfx942"], folder=held, report=lambda line: None)
        objects = [path.read_bytes() for path in held.rglob("*.hsaco")]
    assert built.bundle.is_file()
    (data,) = (one for one in objects if b'{"luthier":' in one)
    printed = run("compiler_plugin/README.md", manifest, data=data, json=json)["manifest"]
    assert [hook["name"] for hook in printed["hooks"]] == ["swap"]
    assert [one["name"] for one in printed["intrinsics"]] == ["my::laneSwap.i32.i32.i32"]
    build, compile_it = shell.replace("\\\n", " ").strip().splitlines()
    assert Path(str(Toolchain.find().clang)).is_file()
    assert build.startswith("g++ ")
    assert "-fpass-plugin=" in compile_it
