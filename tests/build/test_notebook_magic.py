"""``%%luthier``: programs, kernels and hooks in cells of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import luthier
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

APPS = Path(__file__).parents[2] / "examples" / "apps"
KERNEL = """extern "C" __global__ void saxpy(float *y, const float *x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
LAUNCH = "--launch 'saxpy.launch(y, x, np.float32(2), 1000, grid=4, block=256)'"
Cell = Callable[[str], Any]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cell]:
    """Run a cell; return its result, its error, what it printed and the shell's names."""
    monkeypatch.setenv("HIP_PLATFORM", "amd")
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "luthier_build.notebook")
    monkeypatch.chdir(tmp_path)
    shell.push({"np": np, "x": np.arange(1000, dtype=np.float32), "y": np.ones(1000, np.float32)})

    def run(text: str) -> Any:
        with capture_output() as shown:
            done = shell.run_cell(text)
        printed = shown.stdout + shown.stderr
        return SimpleNamespace(result=done.result, error=done.error_in_exec, printed=printed, names=shell.user_ns)

    yield run
    InteractiveShell.clear_instance()


def test_hooks_and_a_tool_of_the_notebook(cell: Cell) -> None:
    """A cell of hooks, a tool of the notebook, a cell with a kernel: the launch changes the notebook's arrays."""
    hook = "__device__ unsigned long long loads = 0;\nLUTHIER_HOOK_ANNOTATE count() { atomicAdd(&loads, 1ull); }\n"
    assert "counters: count\n" in cell(f"%%luthier --name counters\n{hook}").printed
    cell(
        "import luthier\nclass Loads(luthier.Tool):\n  def instrument(self, task):\n"
        "    for load in task.select(lambda one: one.is_load and one.memory.space == 'global'):\n"
        "      task.insert_hook_before(load, counters.count)\n"
    )
    done = cell(f"%%luthier -t Loads --name tables {LAUNCH}\n{KERNEL}")
    assert done.error is None, done.printed
    assert dict(done.names["tables"][0].rows) == {"loads": 2000}
    assert np.array_equal(done.names["y"], 1 + 2 * done.names["x"])
    assert "('loads', 2000)" in done.printed


def test_templates_overloads_and_new_variables(cell: Cell, tmp_path: Path) -> None:
    """A header beside the notebook; a comment that mentions main( and hooks is no program."""
    (tmp_path / "own.h").write_text("#define PLUS 3\n")
    source = (
        '#include "own.h"\n// Not main( and no LUTHIER_HOOK_ANNOTATE.\n'
        "namespace ns { template <class T> __global__ void add(T *y) { y[threadIdx.x] += PLUS; } }\n"
        "template __global__ void ns::add<float>(float *);\n"
        "__global__ void two(float *y) { y[0] = 1; }\n__global__ void two(float *y, int n) { y[0] = n; }\n"
    )
    launch = 'done = kernels["ns::add<float>"].launch(y, grid=1, block=64); kernels["two(float*, int)"]'
    done = cell(f"%%luthier --launch '{launch}'\n{source}")
    assert done.error is None, done.printed
    assert list(done.names["y"][:65:64]) == [4, 1]
    assert "done" in done.names
    assert "kernels" not in done.names
    assert "2 kernels are called two" in cell(f"%%luthier --launch 'two.launch(y, grid=1, block=1)'\n{source}").printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"%%luthier\n{KERNEL}", "launch its kernels with --launch"),
        (f"%%luthier {LAUNCH} -t a -t b\n{KERNEL}", "--launch takes one tool, not 2"),
        (f"%%luthier {LAUNCH} -t opcodes_histogram\n{KERNEL}", "did you mean 'opcode_histogram'?"),
        (f"%%luthier {LAUNCH} --preset once\n{KERNEL}", "--preset once is for programs"),
        (f"%%luthier --name 1x {LAUNCH}\n{KERNEL}", "--name takes a name of Python, not '1x'"),
        (f"%%luthier {LAUNCH}\n{KERNEL.replace('a * x', 'b * x')}", "cell.hip:4:22: error"),
        (f"%%luthier {LAUNCH[:-1]}\n{KERNEL}", "No closing quotation"),
        (f"%%luthier --launch 'saxpy.launch('\n{KERNEL}", "'saxpy.launch(' is not a statement of Python"),
        (
            f"%%luthier --launch 'x.launch(y)'\n{KERNEL.replace('saxpy', 'x')}",
            "x is both a variable of the notebook and",
        ),
        ("%%luthier -o X\nint main() {}", "-o is not for cells"),
        ("%%luthier --device emu:gfx1100\nLUTHIER_HOOK_ANNOTATE f() {}", "a cell of hooks takes --name and --flags"),
        ("%%luthier --launch x\nint main() {}", "--launch is for kernels, and the cell has main"),
    ],
)
def test_errors_are_one_message(cell: Cell, text: str, message: str) -> None:
    done = cell(text)
    assert message in done.printed
    assert "Traceback" not in done.printed
    assert type(done.error).__name__ == "UsageError"


@pytest.mark.thorough
def test_a_program(cell: Cell, tmp_path: Path) -> None:
    """Its output, its exit code, and the results with lines of the cell; it runs in the notebook's folder."""
    source = (APPS / "divergent_loop.hip").read_text()
    source = source.replace("int main() {", 'int main() { std::fclose(std::fopen("made", "w"));')
    assert "fopen" in source
    done = cell(f"%%luthier -k divergent_loop --name result -- a b\n{source}")
    assert done.error is None, done.printed
    assert isinstance(done.result, luthier.OpenedRun)
    assert done.names["result"] is done.result
    assert done.result.folder.summary.command == ["cell", "a", "b"]
    assert done.result.folder.summary.exit_code == 0
    assert (tmp_path / "made").exists()
    assert done.printed.startswith("111\n")
    loop = 2 + next(at for at, line in enumerate(source.splitlines()) if "while" in line or "for (" in line)
    assert any(str(row[1]).endswith(f"/cell.hip:{loop}") for row in done.result.lines.rows)


@pytest.mark.thorough
def test_a_program_without_kernels(cell: Cell) -> None:
    nothing = cell("%%luthier\nint main() { return 3; }")
    assert "nothing was instrumented" in nothing.printed
    assert "exit code 3" in nothing.result._repr_html_()
