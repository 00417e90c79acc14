"""``luthier project`` of captured launches."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.projection import machine_named

from .conftest import Luthier

Captured = Callable[..., list[Path]]


def test_project(captured: Captured, luthier: Luthier) -> None:
    """A capture runs with the recorded instructions, and is projected on each machine in their order."""
    files = captured("histogram")[:1]
    done = luthier("project", "--json", "--groups", "0", "--to", "mi250x,w7800", *files)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    (truth,) = json.loads(luthier("replay", "--json", *files).stdout)
    assert row["instructions"] == truth["instructions"]
    names = [projection["machine"] for projection in row["projections"]]
    assert names == [machine_named("mi250x").name, machine_named("w7800").name]
    own, other = row["projections"]
    assert own["groups"] == own["measured_groups"]
    assert all(unit["busy_us"] <= own["time_us"] for unit in own["units"])
    assert sum(one["executions"] for one in own["instructions"]) > 0
    assert own["validation"] == machine_named("mi250x").validation
    assert not any("never compared" in note for note in own["notes"])
    assert any("code for gfx90a on gfx1100" in note for note in other["notes"])


def test_calibration(captured: Captured, luthier: Luthier, tmp_path: Path) -> None:
    """Numbers are fitted to times that a slower launch would have; a capture of the same launch counts once."""
    files = captured("histogram")
    projections = [one for row in json.loads(luthier("project", "--json", *files).stdout) for one in row["projections"]]
    (tmp_path / "times.csv").write_text(
        "kernel,us\n" + "".join(f"{one['kernel']},{one['time_us'] + 5}\n" for one in projections)
    )
    words = ["--calibrate", tmp_path / "times.csv", "--fit", "launch_overhead", "-o", tmp_path / "mine.toml"]
    done = luthier("project", *words, *files, files[0])
    assert done.returncode == 0, done.stderr
    assert f"mean error over {len(projections)} launches" in done.stdout
    numbers = tomllib.loads((tmp_path / "mine.toml").read_text())
    before = machine_named("gfx90a").value("launch_overhead")
    assert numbers["launch_overhead"]["value"] == pytest.approx(before + 5, rel=0.02)


def test_own_gpu_is_the_default(captured: Captured, luthier: Luthier) -> None:
    """Without ``--to``, the machine that stands for the code's processor is used, and no other answer is given."""
    file = captured("histogram")[0]
    default, named = (
        json.loads(luthier("project", "--json", *words, file).stdout) for words in ([], ["--to", "gfx90a"])
    )
    assert default == named
    assert default[0]["projections"][0]["machine"] == machine_named("gfx90a").name


def test_code_of_another_processor(captured: Captured, build_program: Callable[..., Path], luthier: Luthier) -> None:
    """A build for another processor runs with the captured memory, in waves of that processor."""
    file = captured("histogram")[0]
    words = ["--with-object", build_program("histogram"), "--device", "emu:gfx1030"]
    done = luthier("project", "--json", *words, file)
    assert done.returncode == 0, done.stderr
    (projection,) = json.loads(done.stdout)[0]["projections"]
    assert projection["machine"] == machine_named("gfx1030").name
    assert not any("code for" in note for note in projection["notes"])


def test_texts(captured: Captured, luthier: Luthier) -> None:
    """Tables and explanations say that times are projected, and how they compared with measured ones, or that never."""
    file = captured("histogram")[0]
    table = luthier("project", file).stdout
    lines = luthier("project", "--by", "line", file).stdout
    words = luthier("project", "--explain", "*", file).stdout
    assert "projected us" in table
    assert "mean error" in table
    assert "never" in luthier("project", "--to", "mi100", file).stdout
    assert "stall cycles" in lines
    assert "projected" in words
    assert "waves are resident" in words


def test_own_machine(captured: Captured, luthier: Luthier, temporary: Path) -> None:
    """A machine from a file replaces numbers of a built-in one."""
    file, machine = captured("histogram")[0], temporary / "mine.toml"
    machine.write_text(
        'base = "mi250x"\nname = "mine"\nlaunch_overhead = {value = 1000, unit = "us", source = "test"}\n'
    )
    done = luthier("project", "--json", "--machine", machine, file)
    (row,) = json.loads(done.stdout)
    assert row["projections"][0]["machine"] == "mine"
    assert row["projections"][0]["bound_by"] == "launch overhead"
    assert 1000 < row["projections"][0]["time_us"] < 1100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "mi250y"', "not a built-in model"),
        ('base = "mi250x"\nclock = {value = 0, unit = "MHz", source = "test"}', "must be more than 0, not 0"),
        ('base = "mi250x"\nclock = {value = 1, unit = "GHz", source = "test"}', "must be in MHz, not 'GHz'"),
        ('base = "mi250x"\nclock = {value = 1, unit = "MHz", source = " "}', "has no source"),
        ('base = "mi250x"\nl2_line = {value = 0.5, unit = "bytes", source = "test"}', "must be a multiple of 4"),
        ('base = "mi250x"\nclok = {value = 1, unit = "MHz", source = "test"}', "unknown field `clok`"),
        ('base = "mi250x"\nclock = 1', "Expected `object`"),
        ("name = 'a'", "missing required field"),
        ('base = "mi250x"\nprocessor = "gfx803"', "unknown target 'gfx803'"),
        ("[", "not a machine model"),
    ],
)
def test_bad_machines(luthier: Luthier, temporary: Path, text: str, message: str) -> None:
    """A bad machine is refused with what is wrong."""
    machine = temporary / "bad.toml"
    machine.write_text(text)
    done = luthier("project", "--machine", machine, "absent.lcap")
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr


def test_bad_options(captured: Captured, luthier: Luthier, temporary: Path) -> None:
    """Unknown GPUs, kernels and files are refused with what there is."""
    file = captured("histogram")[0]
    for words, message in (
        (["--to", "mi255"], "there are mi100"),
        (["--to", "gfx803"], "no machine model"),
        (["--groups", "-1"], "at least 0"),
        (["--explain", "absent"], "there are launches of"),
    ):
        done = luthier("project", *words, file)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    (temporary / "damaged.lcap").write_bytes(b"PK")
    done = luthier("project", temporary / "damaged.lcap", file)
    assert done.returncode == 2
    assert "not projected" in done.stderr
    assert "projected us" in done.stdout


def test_machines_of_one_name(captured: Captured, luthier: Luthier, tmp_path: Path) -> None:
    """A machine that is named twice answers once; two machines of one name would share a row."""
    file = captured("histogram")[0]
    once, twice = (
        json.loads(luthier("project", "--json", "--to", names, file).stdout) for names in ("mi250x", "mi250x,gfx90a")
    )
    assert once == twice
    (tmp_path / "mine.toml").write_text('base = "mi250x"\nclock = { value = 1000, unit = "MHz", source = "mine" }\n')
    done = luthier("project", "--to", "mi250x", "--machine", tmp_path / "mine.toml", file)
    assert "two machines have the same name" in done.stderr, done
    assert "--to names no GPU; there are " in luthier("project", "--to", ",", file).stderr
    assert "leave out --json" in luthier("project", "--explain", "histogram", "--json", file).stderr
