"""`luthier sanitize` of captured launches: the same findings as in the program, by replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier

from .conftest import Luthier
from .test_unordered import BUGS

CHECKS = "race,init,barrier,early-exit"


def sanitized_captures(folder: Path, *words: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the findings without what differs from process to process, and what was printed."""
    log = folder / "findings.json"
    done = run_luthier("sanitize", "--json", log, *words)
    findings = json.loads(log.read_text())["findings"]
    for finding in findings:
        if not finding["in_lds"]:
            finding["address"] %= 4096
        if finding["other"] is not None and not finding["in_lds"]:
            finding["other"]["address"] %= 4096
        for name in ("process", "object", "allocation", "side", "distance"):
            del finding[name]
        if finding["other"] is not None:
            del finding["other"]["object"]
    return done.returncode, findings, done.stderr


@pytest.fixture
def launches(build_program: Callable[..., Path], luthier: Luthier, temporary: Path) -> Callable[..., Path]:
    """``launches(*arguments, target=...)``: a folder of captures of `unordered.hip`."""

    def capture(*arguments: str, target: str = "gfx90a") -> Path:
        program = build_program("unordered", "-gline-tables-only")
        done = luthier("capture", "--device", f"emu:{target}", "-o", temporary / "kept", "--", program, *arguments)
        assert done.returncode == 0, done.stderr
        return temporary / "kept"

    return capture


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize(
    ("kernel", "bug"), [pair for pair in BUGS if pair[0] in ("tree", "partial")] + [("tree", "none")]
)
def test_findings_are_the_program_s(
    build_program: Callable[..., Path],
    launches: Callable[..., Path],
    temporary: Path,
    kernel: str,
    bug: str,
    target: str,
) -> None:
    program = build_program("unordered", "-gline-tables-only")
    truth = sanitized_captures(temporary, "--check", CHECKS, "--device", f"emu:{target}", "--", program, kernel, bug)
    result = sanitized_captures(temporary, "--check", CHECKS, launches(kernel, bug, target=target))
    assert result[:2] == truth[:2]
    assert result[0] == (bug != "none")
    assert bool(result[1]) == (bug != "none")


def test_lds(build_program: Callable[..., Path], luthier: Luthier, temporary: Path) -> None:
    """Bounds of LDS are checked to the byte; those of memory are the driver's, which is reported."""
    program, kept, device = build_program("stops", "-g"), temporary / "kept", ("--device", "emu:gfx90a")
    truth = sanitized_captures(temporary, "--check", "memory", *device, "--", program, "lds")
    assert luthier("capture", *device, "-o", kept, "--", program, "lds").returncode == 0
    code, findings, output = sanitized_captures(temporary, "--check", "memory", kept)
    assert (code, findings) == truth[:2]
    assert [(one["kind"], one["in_lds"]) for one in findings] == [("out-of-bounds", True)]
    assert "not checked: bounds to the byte of memory: captures record whole pages only" in output


def test_early_exit_alone(launches: Callable[..., Path], temporary: Path) -> None:
    code, findings, _ = sanitized_captures(temporary, "--check", "early-exit", launches("partial", "ended"))
    assert code == 1
    assert {one["kind"] for one in findings} == {"missed-barrier"}


def test_replay_takes_the_same_names(
    build_program: Callable[..., Path], launches: Callable[..., Path], luthier: Luthier, temporary: Path
) -> None:
    kept = launches("tree", "barrier")
    _, truth, _ = sanitized_captures(temporary, "--check", "race,init", kept)
    done = luthier("replay", "--json", "--check", "race,init,waits", kept)
    (row,) = json.loads(done.stdout)
    assert (done.returncode, len(row["findings"])) == (1, len(truth)), done
    for finding, text in zip(truth, row["findings"], strict=True):
        place = f"{finding['name']} at {finding['offset']:#x} ({finding['instruction']})"
        assert text.startswith(f"{finding['kind']} in {place}: ")
        assert f"unordered.hip:{finding['frames'][0]['line']}:" in text
    assert "  race in " in luthier("replay", "--check", "race", kept).stdout
    status, findings, _ = sanitized_captures(temporary, "--check", "waits,hazards", kept)
    assert (status, findings) == (0, [])
    done = luthier("replay", "--check", "leak", kept)
    assert (done.returncode, "no check 'leak'" in done.stderr) == (1, True), done
    under_tools = luthier("replay", "-t", "instr_count", "--check", "race", kept)
    assert (under_tools.returncode, "race in " in under_tools.stdout) == (1, True), under_tools


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("kernel", ["divides", "halves", "mixes"])
@pytest.mark.parametrize("kinds", ["nan,inf", "denormal,flow", "nan,inf,denormal,flow"])
def test_exceptional_floats(
    build_program: Callable[..., Path], luthier: Luthier, temporary: Path, kernel: str, target: str, kinds: str
) -> None:
    program, kept = build_program("floats", "-gline-tables-only"), temporary / "kept"
    device = ["--device", f"emu:{target}"]
    options = ["--check", "fp", "--fp", kinds]
    assert luthier("capture", *device, "-o", kept, "--", program, kernel, "bug").returncode == 0
    truth = sanitized_captures(temporary, *options, *device, "--", program, kernel, "bug")
    result = sanitized_captures(temporary, *options, kept)
    assert result[:2] == truth[:2]
    assert bool(result[1]) == (kernel == "mixes" or "inf" in kinds)
    if kinds == "nan,inf":
        done = luthier("replay", "--json", "--check", "fp", kept)
        (row,) = json.loads(done.stdout)
        assert len(row["findings"]) == len(truth[1]) > 0


def test_options(launches: Callable[..., Path], luthier: Luthier, temporary: Path) -> None:
    kept = launches("tree", "barrier")
    alone = sanitized_captures(temporary, "--check", CHECKS, kept)
    assert sanitized_captures(temporary, "--check", CHECKS, "--scheduler", "local", kept)[:2] == alone[:2]
    assert sanitized_captures(temporary, "--check", CHECKS, "--error-exitcode", "7", kept)[0] == 7
    assert sanitized_captures(temporary, "--check", "memory", kept)[:2] == (0, [])
    rules = temporary / "rules"
    sanitized_captures(temporary, "--check", CHECKS, "--gen-suppressions", rules, kept)
    code, _, output = sanitized_captures(temporary, "--check", CHECKS, "--suppress", rules, kept)
    assert (code, "0 findings, 2 suppressed" in output) == (0, True)
    (kept / "damaged.lcap").write_bytes(b"PK")
    for words, code, message in (
        (["--check", "leak", kept], 1, "leak works for programs"),
        (["--check", "memory", kept], 2, "not a capture"),
        (["--check", CHECKS, kept], 1, "not a capture"),
        (["--scheduler", "local", "--", "true"], 1, "--scheduler works for captures"),
    ):
        done = run_luthier("sanitize", *words)
        assert (done.returncode, message in done.stderr) == (code, True), done


def test_memory_that_is_not_there(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    """Memory that a capture does not have is none: the fault is a finding."""
    import msgspec
    from luthier.capture import read_capture, write_capture

    capture = read_capture(captured("defects")[0])
    page = int(capture.after["address"][2])
    manifest = msgspec.structs.replace(capture.manifest, left_out=((page, 4096),))
    kept = capture.before[capture.before["address"] != page]
    write_capture(temporary / "less.lcap", msgspec.structs.replace(capture, manifest=manifest, before=kept))
    code, (finding,), _ = sanitized_captures(temporary, temporary / "less.lcap")
    assert (code, finding["kind"], finding["size"], finding["instruction"].split()[0]) == (
        1,
        "invalid-address",
        4,
        "global_store_dword",
    )
    assert finding["count"] == 1


@pytest.mark.rows(1)
@pytest.mark.parametrize("bug", ["none", "barrier"])
def test_without_options(launches: Callable[..., Path], temporary: Path, bug: str) -> None:
    """All checks of the default run that can; the others are named as not checked."""
    code, findings, output = sanitized_captures(temporary, launches("tree", bug))
    assert (code, {one["kind"] for one in findings}) == ((1, {"race"}) if bug == "barrier" else (0, set())), output
    checked = json.loads((temporary / "findings.json").read_text())["checked"]
    assert checked["checks"] == ["memory", "race", "init", "barrier", "early-exit"]
    assert checked["launches"] == checked["kernels"] == 1
    assert "not checked: leak, host: captures are of launches, not of programs" in output
    done = run_luthier("sanitize", "--budget", "1", temporary / "kept")
    assert (done.returncode, "name the captures" in done.stderr) == (1, True)
