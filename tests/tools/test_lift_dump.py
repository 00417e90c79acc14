"""The tool that writes the output of `luthier lift` for kernels to separate files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from llvmlite import binding
from luthier import InstrumentationTask, lift, load_object
from luthier.cli.main import main
from luthier.errors import ToolError


def test_files_say_what_lift_says(app: Any, shipped: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = app("reduction", "gfx90a")
    tool = shipped("lift_dump", form="listing+llvm+json", to=str(tmp_path / "to"))
    tool.instrument(InstrumentationTask(lift(load_object(path), "reduction")))
    files = {file.suffix: file.read_text() for file in (tmp_path / "to").iterdir()}
    assert files.keys() == {".s", ".ll", ".json"}
    assert all(file.name.startswith("reduction-") for file in (tmp_path / "to").iterdir())
    for suffix, options in ((".s", ["--annotate", "--registers"]), (".ll", ["--llvm"])):
        assert main(["lift", str(path), "--kernel", "reduction", *options]) == 0
        assert files[suffix] == capfd.readouterr().out
    binding.parse_assembly(files[".ll"]).verify()
    assert main(["lift", str(path), "--kernel", "reduction", "--annotate", "--json"]) == 0
    assert [json.loads(files[".json"])] == json.loads(capfd.readouterr().out)


def test_hostile_names_stay_in_the_folder(shipped: Any, app: Any, tmp_path: Path) -> None:
    lifted = lift(load_object(app("vector_add", "gfx90a")), "vector_add")
    kernel = lifted.kernel
    msgspec.structs.force_setattr(kernel, "name", "../../x\0y" + "z" * 300)
    tool = shipped("lift_dump", to=str(tmp_path / "to"))
    tool.instrument(InstrumentationTask(lifted))
    (file,) = (tmp_path / "to").iterdir()
    assert file.stat().st_size
    assert [row[2] for row in tool.rows] == [""]
    assert [one.name for one in tmp_path.iterdir()] == ["to"]


def test_a_folder_that_cannot_be_written_is_told(shipped: Any, app: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tool = shipped("lift_dump", to=str(tmp_path / "file"))
    tool.instrument(InstrumentationTask(lift(load_object(app("vector_add", "gfx90a")), "vector_add")))
    ((name, file, reason),) = tool.rows
    assert (name, file) == ("vector_add", "")
    assert reason.startswith("listing: ")


def test_what_it_cannot_do(shipped: Any, app: Any) -> None:
    with pytest.raises(ToolError, match="form"):
        shipped("lift_dump", form="poem")
    with pytest.raises(ToolError, match="nowhere to write"):
        shipped("lift_dump").instrument(
            InstrumentationTask(lift(load_object(app("vector_add", "gfx90a")), "vector_add"))
        )
