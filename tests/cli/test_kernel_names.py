"""`--kernel` means the same for every command: one table of patterns, and what each command takes them for."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from compiling import compiled
from kept import kept
from luthier.cli.main import COMMANDS, main
from luthier.errors import ObjectError
from luthier.module import ToolModule
from luthier.objects import load_object
from luthier.objects.names import as_in_source, is_selected, matches, select, spellings
from luthier.support.table import Table
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask

SOURCE = """
#define KERNEL __attribute__((global, used, visibility("protected")))
typedef unsigned U;
extern "C" KERNEL void plain(U *p) { p[0] = 1; }
KERNEL void overloaded(U *p) { p[0] = 2; }
KERNEL void overloaded(U *p, int n) { p[n] = 3; }
namespace math {
template <typename T, int N> struct Box {};
template <typename T> KERNEL void scale(T *p, int n) { p[n] = T(); }
template KERNEL void scale<float>(float *, int);
template KERNEL void scale<Box<int, 3> *>(Box<int, 3> **, int);
}
"""
SHORT = "math::scale<float>"
KERNELS = {
    "plain": ("plain",),
    "_Z10overloadedPj": ("overloaded", "overloaded(unsigned int*)"),
    "_Z10overloadedPji": ("overloaded", "overloaded(unsigned int*, int)"),
    "_ZN4math5scaleIfEEvPT_i": (SHORT, "void math::scale<float>(float*, int)"),
    "_ZN4math5scaleIPNS_3BoxIiLi3EEEEEvPT_i": (
        "math::scale<math::Box<int, 3>*>",
        "void math::scale<math::Box<int, 3>*>(math::Box<int, 3>**, int)",
    ),
}
"""Symbol -> its C++ names."""
SHORT_NAMES = {
    "_ZN5desul12_GLOBAL__N_14initEv": "desul::(anonymous namespace)::init",
    "_ZN1A3barINS_12_GLOBAL__N_11TEEEvT_": "A::bar<A::(anonymous namespace)::T>",
    "_ZZN1A3fooEvENKUlvE_clEv": "A::foo()::'lambda'()::operator()",
    "_ZN7mycrate7example17h1234567890abcdefE": "mycrate::example",
    "_RNvCs15kBYyAo9fc_7mycrate7example": "mycrate::example",
    "_ZlsIiEvRKT_": "void operator<<<int>(int const&)",
    "_ZN1AcviEv": "A::operator int()",
    "_Z1fIiEPFvfEi": "void (*f<int>(int))(float)",
    "__shapes_MOD_scale_all._omp_fn.0": "shapes::scale_all._omp_fn.0",  # gfortran
    "__omp_offloading_fe00_2804dc__QMshapesPscale_all_l6": "__omp_offloading_fe00_2804dc_shapes::scale_all_l6",  # flang
    "__no_MODULE_here": "__no_MODULE_here",
    "my_QMathPow": "my_QMathPow",
}
"""Symbol -> its last spelling."""
PATTERNS: dict[tuple[str, ...], set[str]] = {
    (): set(KERNELS),
    ("plain",): {"plain"},
    ("pl*",): {"plain"},
    ("overloaded",): {"_Z10overloadedPj", "_Z10overloadedPji"},
    ("overloaded(unsigned int*)",): {"_Z10overloadedPj"},
    ("_Z10overloadedPji",): {"_Z10overloadedPji"},
    ("overloaded(*",): {"_Z10overloadedPj", "_Z10overloadedPji"},
    ("_Z10*",): {"_Z10overloadedPj", "_Z10overloadedPji"},
    ("math::scale",): set(list(KERNELS)[3:]),
    ("math::*",): set(list(KERNELS)[3:]),
    (SHORT, "plain"): {"_ZN4math5scaleIfEEvPT_i", "plain"},
    ("!plain",): set(KERNELS) - {"plain"},
    ("math::*", "!*Box*"): {"_ZN4math5scaleIfEEvPT_i"},
    ("?lain",): {"plain"},
}
WRONG = ["PLAIN", "plai", "math", "scale", "", "*nothing*"]


@pytest.fixture(scope="module")
def path() -> Path:
    source = kept(SOURCE, lambda path: path.write_text(SOURCE), "names.hip")
    command = ["clang-22", "-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "--offload-arch=gfx942"]
    return compiled([*command, "-O1", "-nogpuinc", "-nogpulib", source], [source], "gfx942.co")


def test_spellings(path: Path) -> None:
    assert {name: set(spellings(name)) for name in load_object(path).kernels} == {
        name: {name, *others} for name, others in KERNELS.items()
    }


def test_tables_for_people() -> None:
    """Names without parameters, but of overloads with them; also inside other texts, and in no number."""
    first, second, box = (list(KERNELS)[at] for at in (1, 2, 4))
    tables = [
        Table(f"{box}: waves", ("kernel", "n"), [(first, 1), ("plain", None), ("_Z", 0.5)]),
        Table("", ("what",), [(f"calls {second}, {box} and _Znonsense",)]),
    ]
    shown = as_in_source(tables)
    assert (shown[0].title, shown[1].title) == ("math::scale<math::Box<int, 3>*>: waves", "")
    assert [list(row) for row in shown[0].rows] == [["overloaded(unsigned int*)", 1], ["plain", None], ["_Z", 0.5]]
    assert shown[1].rows[0][0] == (
        "calls overloaded(unsigned int*, int), math::scale<math::Box<int, 3>*> and _Znonsense"
    )
    assert as_in_source(tables[:1])[0].rows[0][0] == "overloaded"
    fortran = Table("in __a_MOD_b._omp_fn.0: 3", ("what",), [("_RNvCs1234_7mycrate3foo",)])
    assert (as_in_source([fortran])[0].title, as_in_source([fortran])[0].rows[0][0]) == (
        "in a::b._omp_fn.0: 3",
        "mycrate::foo",
    )
    assert tables[0].rows[0][0] == first


@pytest.mark.parametrize("patterns", PATTERNS)
def test_what_patterns_mean(path: Path, patterns: tuple[str, ...]) -> None:
    names = list(load_object(path).kernels)
    assert select(names, patterns, file="f") == [name for name in names if name in PATTERNS[patterns]]
    assert {name for name in names if is_selected(name, patterns)} == PATTERNS[patterns]


def test_names_with_brackets_mean_themselves() -> None:
    assert matches("k[3]", "k[3]")
    assert not matches("k3", "k[4]")


@pytest.mark.parametrize("pattern", WRONG)
def test_what_fits_nothing_is_an_error(path: Path, pattern: str) -> None:
    with pytest.raises(ObjectError, match="no kernel matches"):
        select(list(load_object(path).kernels), ["plain", pattern], file="f")


def test_leaving_out_everything_is_an_error() -> None:
    with pytest.raises(ObjectError, match="all kernels are excluded"):
        select(["a", "b"], ["!*"], file="f")


class First(Tool):
    """Counts nothing, at each kernel's first instruction."""

    module: ToolModule

    def instrument(self, task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, self.module.nothing)


@pytest.fixture
def tool(make_module: Callable[..., ToolModule], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`-t` and a tool that inserts something into every kernel."""
    from luthier.tool import ToolGroup

    First.module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx942")
    monkeypatch.setattr("luthier.tool.parse_tools", lambda names: ToolGroup.of(First()))
    return ["-t", "first"]


def seen_by(
    command: str, path: Path, options: list[str], tool: list[str], capsys: pytest.CaptureFixture[str], folder: Path
) -> set[str]:
    """The kernels that a command's JSON is about."""
    needs_tool = command in ("patch", "cost", "verify")
    output = ["-o", str(folder / "out")] if command == "patch" else []
    assert main([command, str(path), *options, *(tool if needs_tool else []), *output, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    if command == "objects":
        return {kernel["name"] for one in report for kernel in one["kernels"]}
    if command == "disasm":
        return {part["name"] for one in report for part in one["functions"] if part["kernel"]}
    if command == "verify" or command == "lift":
        return {one["kernel"] for one in report}
    return {one["kernel"] for one in report["kernels"]}


COMMANDS_WITH_KERNELS = ("objects", "disasm", "lift", "check", "patch", "cost", "verify")


@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("command", COMMANDS_WITH_KERNELS)
def test_every_command(
    command: str,
    patterns: tuple[str, ...],
    path: Path,
    tool: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    options = [f"--kernel={pattern}" for pattern in patterns]
    assert seen_by(command, path, options, tool, capsys, tmp_path) == PATTERNS[patterns]


@pytest.mark.parametrize("command", COMMANDS_WITH_KERNELS)
def test_every_command_refuses(
    command: str, path: Path, tool: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ["-t", "first"] if command in ("patch", "cost", "verify") else []
    options += ["-o", str(tmp_path / "out")] if command == "patch" else []
    assert main([command, str(path), "--kernel", "plain", "--kernel", "nowhere", *options]) != 0
    assert "no kernel matches 'nowhere'" in capsys.readouterr().err


def test_no_command_is_forgotten() -> None:
    """All that have the option are in the tests above, but for those that run programs, `diff` below, and `extract`,
    which writes whole objects."""
    with_option = set()
    for name, (module, _) in COMMANDS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(module).add_arguments(parser)
        if any("--kernel" in action.option_strings for action in parser._actions):
            with_option.add(name)
    tested_elsewhere = {"run", "profile", "sanitize", "capture", "debug", "diff", "extract"}
    assert with_option - tested_elsewhere == set(COMMANDS_WITH_KERNELS)


def test_diff(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(path), str(path), "--kernel", "plain"]) == 0
    assert main(["diff", str(path), str(path), "--kernel", "nowhere"]) != 0
    assert "nowhere" in capsys.readouterr().err


CYTHON_NAMES = {
    "__pyx_pw_4rocm_8bindings_3hip_579hipModuleLaunchKernel": "rocm.bindings.hip.hipModuleLaunchKernel",
    "__pyx_f_4rocm_8bindings_3hip_10ulonglong1_fromPtr__pyx_wrap_1": "rocm.bindings.hip.ulonglong1.fromPtr",
    "__pyx_pf_4cupy_5_core_4core_13_ndarray_base_4fill_x": "cupy._core.core._ndarray_base.fill_x",
    "__pyx_f_4cupy_4cuda_8function__launch.isra.0": "cupy.cuda.function._launch",
    "__pyx_f_3a": "__pyx_f_3a",
    "__pyx_f_" + "9" * 5000: "__pyx_f_" + "9" * 5000,
    "__pyx_tp_new_4rocm_x": "__pyx_tp_new_4rocm_x",
}


def test_names_of_cython() -> None:
    assert {symbol: spellings(symbol)[-1] for symbol in CYTHON_NAMES} == CYTHON_NAMES


def test_short_names() -> None:
    """What is no parameter is kept, and a name that cannot be told from its return type is shown whole."""
    assert {symbol: spellings(symbol)[-1] for symbol in SHORT_NAMES} == SHORT_NAMES
