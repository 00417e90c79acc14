"""No line is wider than the terminal, and no name becomes another one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from luthier import Table
from run_folders import kernel, write_run
from terminals import on_terminal

WIDTHS = (80, 120)
_DRAWN = re.compile(r"\x1b7.*?\x1b8|\x1b\[K")
"""What is drawn without wrapping while the command works, and erased (luthier.cli.progress)."""
SOURCE = """
#include <hip/hip_runtime.h>
namespace a_namespace_with_a_long_name {
template <typename Number, int count> __global__ void scale_by_a_factor_in_single_precision(Number *values,
                                                                                                 Number factor) {
  values[threadIdx.x] *= factor + count;
}
template <typename Number, int count> __global__ void scale_by_a_factor_in_double_precision(Number *values,
                                                                                                 Number factor) {
  values[threadIdx.x] *= factor - count;
}
}
int main() {
  using namespace a_namespace_with_a_long_name;
  void *place;
  if (hipMalloc(&place, 4096) != hipSuccess)
    return 1;
  scale_by_a_factor_in_single_precision<float, 1><<<1, 64>>>((float *)place, 2);
  scale_by_a_factor_in_single_precision<float, 2><<<1, 64>>>((float *)place, 2);
  scale_by_a_factor_in_double_precision<double, 1><<<1, 64>>>((double *)place, 2);
  return hipDeviceSynchronize();
}
"""
NAMES = ("single_precision<float, 1>", "single_precision<float, 2>", "double_precision<double, 1>")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with long names that differ in their middle or at their ends."""
    folder = tmp_path_factory.mktemp("a_folder_with_a_name_that_makes_paths_of_sources_long")
    source = folder / "a_source_file_with_a_long_name.hip"
    source.write_text(SOURCE)
    command = ["hipcc", "--offload-arch=gfx90a", "-O1", "-g", "-w", str(source), "-o", str(folder / "program")]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    return folder / "program"


def fits(columns: int, *arguments: str) -> str:
    """Return what a command writes to a terminal; no line of it may be wider."""
    text = _DRAWN.sub("", on_terminal(columns, list(arguments)))
    wide = [line for line in text.splitlines() if len(line) > columns]
    assert not wide, wide
    return text


def joined(output: str) -> str:
    """Return a text without the breaks that fit it into the terminal."""
    return "".join(output.split())


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("tools", [["coalescing"], ["instr_count"], ["launch_log", "lds_bank_conflicts"]])
def test_run_and_report(program: Path, tmp_path: Path, columns: int, tools: list[str]) -> None:
    chosen = [word for tool in tools for word in ("-t", tool)]
    output = fits(columns, "run", *chosen, "-o", str(tmp_path / "run"), "--", str(program))
    shown = fits(columns, "report", str(tmp_path / "run"))
    for text in (output, shown):
        whole = all(joined(name) in joined(text) for name in NAMES)
        cut = {word for line in text.splitlines() for word in re.split(r"\s{2,}", line) if re.search(r", [12]>$", word)}
        assert whole or len(cut) >= len(NAMES), text


@pytest.mark.rows(1)
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "command",
    [["objects"], ["cost", "-t", "coalescing"], ["lift"], ["lift", "--annotate"], ["lift", "--instructions"]],
)
def test_commands_about_files(program: Path, columns: int, command: list[str]) -> None:
    output = joined(fits(columns, *command, str(program)))
    symbols = ("single_precisionIfLi1E", "single_precisionIfLi2E", "double_precisionIdLi1E")
    assert all(one in output for one in symbols)


@pytest.mark.rows(1)
@pytest.mark.parametrize("columns", WIDTHS)
def test_tools(columns: int) -> None:
    output = joined(fits(columns, "tools"))
    assert "instr_count" in output
    fits(columns, "tools", "coalescing")


@pytest.mark.parametrize("width", [20, 40, 80])
def test_tables_that_cannot_be_cut_become_records(width: int) -> None:
    """Tables whose numbers exceed the width, or whose truncated names would be equal."""
    names = [f"a_long_prefix_{30 * 'x'}{middle}{40 * 'y'}_and_an_end" for middle in "ABC"]
    table = Table("t" * 50, ("kernel", "number"), [[name, 10**30] for name in names])
    text = table.text(width)
    assert all(len(line) <= width for line in text.splitlines())
    assert all(name in joined(text) for name in names)
    assert joined(text).count(str(10**30)) == 3


def test_what_is_empty_is_left_out_of_records(tmp_path: Path) -> None:
    long = "kernel_" + 90 * "x"
    run = write_run(tmp_path / "run", kernels=[kernel(long + "A" + long), kernel(long + "B" + long)])
    output = fits(80, "report", str(run))
    assert all(long + middle + long in joined(output) for middle in "AB")
    assert "reason" not in output
