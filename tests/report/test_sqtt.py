"""Thread traces: tokens, waves, the writer, and tinygrad's decoder beside this one."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.report.sqtt import IMMEDIATE, VALU, WORDS, ThreadTrace, code_kinds, token_kinds
from luthier.report.sqtt_writer import TraceWriter, instruction_code

TARGETS = ("gfx90a", "gfx1030", "gfx1100", "gfx1201")
EFFORT = int(os.environ.get("LUTHIER_FUZZ", "1"))


def written(target: str, seed: int) -> tuple[TraceWriter, list[tuple[str, int, dict[str, int]]]]:
    """Return a trace of random tokens, and their names, times and fields."""
    chosen, writer = random.Random(seed), TraceWriter(target)
    unit = 4 if writer.layout == WORDS else 1
    kinds = [
        kind
        for kind in token_kinds(writer.layout).values()
        if kind.name not in ("TIME", "TIMESTAMP", "HEADER", "MISC", "NOP", "WAVE_START_LONG")
    ]
    tokens, time = [], 0
    for _ in range(300):
        kind = chosen.choice(kinds)
        fields = {field: chosen.randrange(1 << bits) for field, (_, bits) in kind.fields.items()}
        time += unit * chosen.choice((0, 1, 2, 5, 19, 20, 400, 70_000))
        writer.add(kind.name, time, **fields)
        tokens.append((kind.name, time, fields))
    return writer, tokens


@pytest.mark.parametrize("target", TARGETS)
def test_written_tokens_are_read(target: str) -> None:
    writer, tokens = written(target, seed=1)
    trace = ThreadTrace(writer.data())
    waits = ("TIME", "TIMESTAMP", "HEADER", "MISC", "NOP")
    read = [
        (token.kind.name, token.time, {field: token[field] for field in token.kind.fields})
        for token in trace.tokens()
        if token.kind.name not in waits
    ]
    assert (trace.layout, trace.cut, trace.lost) == (writer.layout, False, 0)
    assert read == tokens


def packets(data: bytes) -> list[Any]:
    sqtt = pytest.importorskip("tinygrad.renderer.amd.sqtt")
    return list(sqtt.decode(data))


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_tinygrad_reads_the_same(target: str) -> None:
    """All but the tokens that begin in the last 8 bytes; some kinds have other names there."""
    writer, _ = written(target, seed=2)
    trace = ThreadTrace(writer.data())
    own = list(trace.tokens())
    if target == "gfx1100":  # tinygrad gives NEW_PC 72 bits there; AMD's decoder 64
        own = own[: next(at for at, token in enumerate(own) if token.kind.name == "NEW_PC")]
    pairs = list(zip(own, packets(trace.data), strict=False))
    assert len(pairs) > 20
    for token, packet in pairs:
        names = ("EXEC_COUNT", "EXEC_COUNTS", "SHADER_DATA", "SHADER_DATA_SHORT")
        if target == "gfx1201" and token.kind.name in names:
            break  # not known there
        assert packet._raw & ((1 << min(token.kind.bits, 64)) - 1) == token.value & ((1 << 64) - 1)
        assert packet._time == token.time


def test_a_stream_from_the_documented_bits() -> None:
    """Words by hand: a header of version 3, a wave in slot 5, a vector instruction, s_waitcnt, a load, the end."""
    bits, count = 0, 0
    for value, width in (
        (0b0010001 | 3 << 7 | 2 << 13 | 1 << 15, 64),  # SIMD 2 of WGP 1
        (0b01100 | 2 << 5 | 2 << 8 | 1 << 10 | 5 << 13, 32),
        (0b011 | 1 << 3 | 5 << 7, 12),
        (0b1101 | 3 << 4 | 5 << 7, 12),
        (0b1000 | 2 << 4, 8),  # 6 cycles
        (0b010 | 0 << 4 | 5 << 8 | 34 << 13, 20),
        (0b10101 | 1 << 5 | 2 << 9 | 1 << 11 | 5 << 15, 20),
    ):
        bits |= value << count
        count += width
    trace = ThreadTrace(bits.to_bytes(32, "little"))
    (wave,) = trace.waves()
    assert (trace.cu, trace.simds, wave.simd, wave.slot, wave.start, wave.end, wave.whole) == (1, 4, 2, 5, 2, 13, True)
    steps = [(step.time, step.kind, step.code) for step in wave.steps]
    assert steps == [(3, "valu", VALU), (6, "immediate", IMMEDIATE), (12, "load", 34)]


def test_the_command_shows_traces(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Files or a folder of them, with classes and cycles; what is no trace, and options of runs, are errors."""
    writer = TraceWriter("gfx1100")
    for wave, cycles in ((3, 40), (4, 9)):
        begin = writer.time
        writer.add("WAVE_START", begin, simd=0, wave=wave)
        writer.add("VALU", begin + 4, wave=wave)
        writer.add("WAVE_END", begin + cycles, simd=0, wave=wave)
    trace = tmp_path / "ui" / "one.att"
    trace.parent.mkdir()
    trace.write_bytes(writer.data())
    for path in (trace, tmp_path):
        assert main(["report", str(path), "--format", "json", "--top", "1"]) == 0
        traces, classes, waves = json.loads(capfd.readouterr().out)
        assert traces["rows"] == [["one.att", "version 3", 2, 2, 2, ""]]
        assert classes["rows"] == [["valu", 2, 100.0]]
        assert waves["title"] == "waves, the 1 with most cycles of 2"
        assert [row[2:] for row in waves["rows"]] == [[3, 0, 40, 1, ""]]
    for words in (["--format", "html"], ["--memory", "0"]):
        assert main(["report", str(trace), *words]) == 1
        assert "formats text and json" in capfd.readouterr().err
    for folders in ("other", "1/2/3", "1/2/3/4"):  # the last is too deep
        (tmp_path / folders).mkdir(parents=True)
        (tmp_path / folders / "one.att").write_bytes(writer.data())
    assert main(["report", str(tmp_path), "--format", "json"]) == 0
    names = ["1/2/3/one.att", "other/one.att", "ui/one.att"]
    traces, _, waves = json.loads(capfd.readouterr().out)
    assert [row[0] for row in traces["rows"]] == names
    assert sorted({row[0] for row in waves["rows"]}) == names
    trace.write_bytes(b"no trace at all")
    assert main(["report", str(trace)]) == 1
    assert "is no header of a thread trace" in capfd.readouterr().err


def test_gfx9_takes_a_time_stamp_at_the_reset_before_it() -> None:
    writer = TraceWriter("gfx942")
    for first in (1000, 5000):
        writer.add("MISC", writer.time, type=1)
        writer.add("EVENT", writer.time)
        writer.add("TIMESTAMP", writer.time, cycles=first)
    events = [token.time for token in ThreadTrace(writer.data()).tokens() if token.kind.name == "EVENT"]
    assert events == [0, 3996]


def test_gfx9_replays_are_no_instructions() -> None:
    writer = TraceWriter("gfx942")
    writer.add("WAVE_START", 0)
    for _ in range(3):
        writer.add("ISSUE", writer.time + 4, waves=2)
    for code in (2, 21, 5):
        writer.add("INST", writer.time + 4, code=code)
    writer.add("WAVE_END", writer.time)
    (wave,) = ThreadTrace(writer.data()).waves()
    assert [(step.time, step.kind) for step in wave.steps] == [(4, "load"), (12, "valu")]
    assert wave.whole


@pytest.mark.parametrize(
    ("target", "lost"),
    [("gfx90a", ("MISC", {"type": 2})), ("gfx1030", ("MISC", {"lost": 1})), ("gfx1201", ("TIMESTAMP", {"lost": 1}))],
)
def test_waves_with_lost_tokens_are_not_whole(target: str, lost: tuple[str, dict[str, int]]) -> None:
    writer = TraceWriter(target)
    writer.add("WAVE_START", 0, wave=1)
    writer.add(lost[0], 0, **lost[1])
    writer.add("WAVE_START", 0, wave=2)
    writer.add("WAVE_END", 0, wave=1)
    writer.add("WAVE_END", 0, wave=2)
    writer.add("WAVE_START", 0, wave=3)
    trace = ThreadTrace(writer.data())
    assert [(wave.slot, wave.whole) for wave in trace.waves()] == [(1, False), (2, True), (3, False)]
    assert trace.lost == 1


GFX11 = TraceWriter("gfx1100").data()[:8]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "a file has 0 bytes"),
        (b"\x7fELF\2\1\1\0", "no header of a thread trace"),
        ((0b0010001 | 5 << 7).to_bytes(8, "little"), "GFX9 to GFX12.0"),
        (GFX11 + b"\x41", "a file: no token of format 3 begins with 0x41, at bit 64"),
        (
            GFX11 + (0b01100 | (0b010 | 127 << 13) << 32).to_bytes(8, "little"),
            "no class 127 of instructions, at bit 96",
        ),
    ],
)
def test_malformed(data: bytes, problem: str) -> None:
    with pytest.raises(LuthierError, match=problem):
        list(ThreadTrace(data, "a file").waves())


def test_a_trace_may_end_within_a_token() -> None:
    trace = ThreadTrace(GFX11 + b"\x01")
    assert [token.kind.name for token in trace.tokens()] == ["HEADER"]
    assert trace.cut


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_traces_are_read_or_refused(target: str) -> None:
    data = written(target, seed=3)[0].data()
    chosen = random.Random(4)
    outcomes: set[bool | str] = set()
    for _ in range(60 * EFFORT):
        damaged = bytearray(data[: chosen.randrange(8, len(data))])
        for _ in range(chosen.randrange(9)):
            damaged[chosen.randrange(8, len(damaged) + 1) - 1] = chosen.randrange(256)
        try:
            outcomes.add(len(list(ThreadTrace(bytes(damaged)).waves())) > 0)
        except LuthierError:
            outcomes.add("refused")
    assert "refused" in outcomes
    assert len(outcomes) > 1


def test_classes_of_instructions() -> None:
    """As thread traces of GPUs have them (benchmarks/hardware/thread_traces.py)."""
    rows = {
        ("global_load_b64 v[0:1], v[2:3], off", 3): 34,
        ("global_store_b32 v0, v1, s[2:3]", 3): 36,
        ("v_lshlrev_b64 v[0:1], 2, v[2:3]", 3): 13,
        ("v_cmpx_eq_u32_e32 0, v0", 3): 115,
        ("v_cmpx_eq_u32_e32 0, v0", 4): VALU,
        ("s_mul_i32 s0, s1, s2", 4): 155,
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]", 4): 141,
        ("s_delay_alu instid0(VALU_DEP_1)", 4): None,
        ("s_waitcnt lgkmcnt(0)", WORDS): IMMEDIATE,
        ("s_add_u32 s0, s1, s2", WORDS): 1,
    }
    assert {row: instruction_code(*row) for row in rows} == rows
    assert instruction_code("v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", WORDS, size=8) == 18
    for layout in (WORDS, 2, 3, 4):
        for taken, kind in ((True, "taken"), (False, "not taken")):
            code = instruction_code("s_cbranch_scc0 label", layout, taken=taken)
            assert code is not None
            assert code_kinds(layout)[code] == kind
    with pytest.raises(LuthierError, match="class of s_barrier_signal in thread traces of format 3 is not known"):
        instruction_code("s_barrier_signal -1", 3)
    with pytest.raises(LuthierError, match="thread traces of gfx1250 are not known"):
        TraceWriter("gfx1250")
