"""Launch plans that are wrong: each is an error that names the kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from luthier.errors import LuthierError
from luthier.verify.launch_plan import read_plans

PLAN = "[k]\ngrid = [1]\nblock = [64]\n"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ('buffer = "float32", count = -1', "a buffer of -1 numbers"),
        ('buffer = "float32", count = 4000000000000000', "Unable to allocate"),
        ('buffer = "float32", count = 4000000000000000, fill = "arange"', "Unable to allocate"),
        ('buffer = "float32", count = inf', "infinity"),
        ('buffer = "O", count = 4', "no type of numbers"),
        ('buffer = "S4", count = 4, fill = "random"', "no type of numbers"),
        ('buffer = "uint8", count = 4, fill = 300', "out of bounds"),
        ('buffer = "int32", count = 4, fill = nan', "NaN"),
        ('buffer = "int32", count = 4, fill = "ones"', "unknown fill 'ones'"),
        ('scalar = "uint8", value = 300', "out of bounds"),
        ('scalar = "int32", value = inf', "infinity"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, argument: str, problem: str) -> None:
    path = tmp_path / "launch.toml"
    path.write_text(f"{PLAN}arguments = [{{{argument}}}]\n")
    plan = read_plans(path)["k"]
    with pytest.raises(LuthierError, match=rf"argument 1 of the launch plan: .*{problem}.*kernel k"):
        plan.materialise()


@pytest.mark.parametrize(
    "line", ["dynamic_lds = -1", "dynamic_lds = inf", "grid = [inf]", "block = [0]", "arguments = 7", "arguments_ = []"]
)
def test_sizes_that_cannot_be(tmp_path: Path, line: str) -> None:
    key = line.split()[0]
    path = tmp_path / "launch.toml"
    path.write_text("".join(f"{one}\n" for one in [*PLAN.splitlines(), line] if one is line or one.split()[0] != key))
    with pytest.raises(LuthierError, match="malformed launch plan") as problem:
        read_plans(path)
    assert problem.value.kernel == "k"


def test_numbers_fill_buffers_of_every_type(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    kinds = ("float16", "float64", "int8", "uint64")
    buffers = ", ".join(f'{{buffer = "{kind}", count = 3, fill = 7}}' for kind in kinds)
    path.write_text(f"{PLAN}arguments = [{buffers}]\n")
    for kind, buffer in zip(kinds, read_plans(path)["k"].materialise(), strict=True):
        np.testing.assert_array_equal(buffer, np.full(3, 7, kind), strict=True)
