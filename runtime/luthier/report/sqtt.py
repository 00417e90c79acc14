"""Thread traces as the hardware writes them (SQTT): tokens, the instructions of traced waves.

A trace is one shader engine's buffer: rocprofv3's ``.att`` file, or what a driver copies from the GPU. It is a stream
of tokens, told apart by their lowest bits. Most have a time: cycles since the token before. The first token of GFX10
and later is a header with the format's version; on GFX9, software writes eight bytes before the stream.

Sources: lengths, fields, classes of instructions and rules of time are in AMD's rocprof-trace-decoder
(ROCm/rocm-systems, MIT licence), GFX9's fields also in AMD's register headers (``SQ_THREAD_TRACE_WORD_*``). Tokens of
execution (`MEMORY_EXEC`, `ALU_EXEC`) are in older releases of the former.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from luthier.errors import LuthierError

Bits = tuple[int, int]
"""First bit and number of bits."""


class TokenKind(Struct, frozen=True):
    """A kind of token."""

    name: str
    pattern: int
    pattern_bits: int
    bits: int
    """Length of the token."""
    time: Bits
    fields: dict[str, Bits]


class Token(Struct, frozen=True):
    """A token; `token["wave"]` is its field."""

    kind: TokenKind
    at: int
    """First bit in the trace."""
    time: int
    """Cycles since the trace began."""
    value: int

    def __getitem__(self, field: str) -> int:
        return _field(self.value, self.kind.fields[field])


class TracedStep(Struct, frozen=True):
    """An instruction that a traced wave issued."""

    time: int
    """The token's time: when the instruction was issued."""
    kind: str
    code: int
    """The hardware's class; `VALU` and `IMMEDIATE` where a token of its own says it."""


class WaveTrace(Struct):
    """A wave of the traced SIMD, or compute unit on GFX9."""

    simd: int
    slot: int
    start: int
    end: int | None = None
    steps: list[TracedStep] = []
    whole: bool = True
    """Whether all its tokens are there: none was lost, and it began and ended in the trace."""


VALU, IMMEDIATE = -1, -2
WORDS = 0
"""The format of GFX9: words of 16 bits. The others are called by the version in their header."""
_COMMON = """
INST              010      20 4:3 wide=7:1 wave=8:5 code=13:7
VALU              011      12 3:3 wide=6:1 wave=7:5
MEMORY_EXEC       1111      8 4:2 source=6:2
ALU_EXEC          1110      8 4:2 source=6:2
IMMEDIATE_ONE     1101     12 4:3 wave=7:5
IMMEDIATE         00100    24 5:3 waves=8:16
WAVE_READY        10100    24 5:3 waves=8:16
NEW_PC            0100001  64 8:3 wave=11:5 pc=16:46
WAVE_START        01100    32 5:2 sa=7:1 simd=8:2 wgp=10:3 wave=13:5 pipe=21:2 me=23:1 count=25:7
WAVE_START_LONG   11100    48 5:2 sa=7:1 simd=8:2 wgp=10:3 wave=13:5 pipe=21:2 me=23:1 count=25:7
WAVE_ALLOC        00101    20 5:3
WAVE_END          10101    20 5:3 sa=8:1 simd=9:2 wgp=11:3 wave=15:5
SHADER_DATA       00110    52 5:3
SHADER_DATA_SHORT 10110    28 5:3
UTIL_COUNTER      0110001  64 7:2
TIME              1000      8 4:4
NOP               0000      4 0:0
MISC              1010001  24 7:9 lost=16:1 events=16:8
EVENT             01100001 24 8:3
EVENT_SYNC        11100001 32 8:3
REG               1001     64 4:3 pipe=7:2 me=9:2 compute=15:1 address=16:16 data=32:32
REG_INIT          1110001  64 7:3 type=18:2 data=20:24
TIMESTAMP         0000001  64 0:0 type=14:2 cycles=16:48
HEADER            0010001  64 0:0 version=7:6 simd=13:2 wgp=15:3 sa=19:1
"""
_THIRD = """
UTIL_COUNTER      0110001  48 7:2
MISC              1010001  24 7:9 events=16:8
TIMESTAMP         0000001  48 0:0 lost=8:1 real=9:1 cycles=12:36
"""
_FOURTH = """
INST              010      20 3:3 wide=6:1 wave=7:5 code=12:8
NEW_PC            0100001  72 8:3 wave=11:5 pc=16:55
WAVE_START        01100    32 5:2 sa=7:1 simd=8:2 wgp=10:4 wave=15:5 pipe=20:2 me=22:1 count=25:7
WAVE_START_LONG   11100    40 5:2 sa=7:1 simd=8:2 wgp=10:4 wave=15:5 pipe=20:2 me=22:1 count=25:7
WAVE_ALLOC        00101    24 5:3
WAVE_END          10101    20 5:3 sa=8:1 simd=9:2 wgp=11:4 wave=15:5
SHADER_DATA       0000110  56 7:3
SHADER_DATA_SHORT 1000110  32 7:3
EXEC_COUNT        1100110  24 7:3
EXEC_COUNTS       010110   48 6:3
TIMESTAMP         0000001  64 0:0 real=7:1 lost=8:1 cycles=12:52
"""
_WORDS = """
MISC              0000     16 4:8 type=13:3
TIMESTAMP         0001     64 4:1 cycles=16:48
REG               0010     64 4:1 pipe=5:2 me=7:2 address=16:16 data=32:32
WAVE_START        0011     32 4:1 sh=5:1 cu=6:4 wave=10:4 simd=14:2 pipe=16:2 me=18:2 count=22:7
WAVE_ALLOC        0100     16 4:1 sh=5:1 cu=6:4 wave=10:4 simd=14:2
REG_CS            0101     48 4:1 pipe=5:2 me=7:2 address=9:7 data=16:32
WAVE_END          0110     16 4:1 sh=5:1 cu=6:4 wave=10:4 simd=14:2
EVENT             0111     16 4:1
EVENT_CS          1000     16 4:1
EVENT_GFX1        1001     16 4:1
INST              1010     16 4:1 wave=5:4 simd=9:2 code=11:5
NEW_PC            1011     64 4:1 wave=5:4 simd=9:2 pc=16:48
SHADER_DATA       1100     48 4:1 sh=5:1 cu=6:4 wave=10:4 simd=14:2 data=16:32
ISSUE             1101     32 4:1 simd=5:2 waves=8:20
PERF              1110     64 4:1
REG_CS_PRIVATE    1111     48 4:1 pipe=5:2 me=7:2 address=9:7 data=16:32
"""
FORMATS = {WORDS: (_WORDS,), 2: (_COMMON,), 3: (_COMMON, _THIRD), 4: (_COMMON, _THIRD, _FOURTH)}
_VERSIONS = {1: 2, 2: 2, 3: 3, 4: 4}
"""Formats by the version in the trace's header: GFX10, GFX11, GFX12.0."""
_HEADER_BITS = 64
_ISSUED, _ISSUED_IMMEDIATE = 2, 3
_TIME_RESET, _LOST = 1, 2
"""Types of GFX9's MISC."""
_LEAST_TIME = 4
"""Cycles of a TIME token of zero, and of a unit of GFX9's time."""
_SAVED = range(66, 90)
"""Counts in WAVE_START of waves whose context is saved or restored."""

_SHARED_CODES = """
0 salu, 1-2 smem, 3 taken, 4 not taken, 5 jump, 6 trap, 7 salu, 8 trap, 9 message, 10-18 valu, 19 barrier,
20-21 export, 41 lds load, 42-46 lds store, 47-48 load, 49-54 store, 55-66 sample, 68-71 load, 72-78 store, 103-106 ray,
110-111 lds load
"""
_CODES = {
    WORDS: "0 smem, 1 salu, 2 load, 3 store, 4 store, 5 valu, 6 lds, 7 jump, 8-11 export, 12 taken, 13 not taken,"
    "14 load, 15 message, 16 smem, 17 salu, 18 valu, 19-24 replay, 25 trap, 28 valu, 29 trap",
    2: _SHARED_CODES + ", 30 load, 31-34 store, 35 load, 36-40 store, 79-102 other simd, 112-113 salu",
    3: _SHARED_CODES + ", 28 load, 29-32 store, 33-34 load, 35-40 store, 80-101 other simd, 112-114 salu,"
    "115-116 valu, 117 trap, 118 ray, 119 other simd",
    4: _SHARED_CODES + ", 28 load, 29-32 store, 33-34 load, 35-40 store, 80-89 other simd, 114 salu, 115-116 valu,"
    "117 trap, 118 ray, 119-120 other simd, 121 ray, 122 barrier, 135-137 salu, 138 barrier, 140-143 valu,"
    "146-147 valu, 150-151 smem, 152 salu, 153 valu, 155-156 salu, 188-221 other simd, 222-255 store",
}


@cache
def code_kinds(layout: int) -> dict[int, str]:
    """Return what each of the hardware's classes of instructions is, by number.

    Args:
        layout: a format, such as 3.
    """
    kinds = {VALU: "valu", IMMEDIATE: "immediate"}
    for entry in _CODES[layout].replace("\n", " ").split(","):
        numbers, kind = entry.split(None, 1)
        first, _, last = numbers.partition("-")
        kinds |= dict.fromkeys(range(int(first), int(last or first) + 1), kind.strip())
    return kinds


@cache
def token_kinds(layout: int) -> dict[str, TokenKind]:
    """Return the kinds of tokens of a format, by name."""
    kinds = {}
    for line in "".join(FORMATS[layout]).strip().splitlines():
        if line:
            name, pattern, bits, time, *fields = line.split()
            places = {field: _bits(place) for field, place in (text.split("=") for text in fields)}
            kinds[name] = TokenKind(name, int(pattern, 2), len(pattern), int(bits), _bits(time), places)
    return kinds


def _bits(text: str) -> Bits:
    first, count = text.split(":")
    return int(first), int(count)


def _field(value: int, place: Bits) -> int:
    return value >> place[0] & ((1 << place[1]) - 1)


@cache
def _by_byte(layout: int) -> tuple[TokenKind | None, ...]:
    """Return the kind of token that begins with each byte: of the patterns that fit, the longest."""
    kinds = sorted(token_kinds(layout).values(), key=lambda kind: -kind.pattern_bits)
    return tuple(
        next((kind for kind in kinds if byte & ((1 << kind.pattern_bits) - 1) == kind.pattern), None)
        for byte in range(256)
    )


class ThreadTrace:
    """A thread trace of one shader engine.

    Raises:
        LuthierError: it does not begin with a header of a known version.
    """

    def __init__(self, data: bytes, name: str = "thread trace") -> None:
        self.data, self.name = data, name
        self.cut = False
        """Whether the trace ends within a token; known when all tokens were read."""
        self.lost = 0
        """How often the hardware lost tokens, so far."""
        if len(data) < _HEADER_BITS // 8:
            raise LuthierError(f"{name} has {len(data)} bytes: a thread trace begins with a header of 8 bytes")
        header = int.from_bytes(data[:8], "little")
        legacy, software = _field(header, (0, 13)), _field(header, (13, 3))
        if legacy in (0, 0x11) and software in (4, 5, 6):
            self.layout, self._begin = WORDS, _HEADER_BITS
            self.cu, self.simds = _field(header, (20, 5)), _field(header, (16, 4))
            return
        kind = token_kinds(2)["HEADER"]
        version = _field(header, kind.fields["version"])
        if _field(header, (0, kind.pattern_bits)) != kind.pattern or version not in _VERSIONS:
            raise LuthierError(
                f"{name} begins with {data[:8].hex(' ')}, which is no header of a thread trace of GFX9 to GFX12.0"
            )
        self.layout, self._begin = _VERSIONS[version], 0
        self.cu = _field(header, kind.fields["wgp"]) | _field(header, kind.fields["sa"]) << 7
        self.simds = 1 << _field(header, kind.fields["simd"])

    def _read(self) -> Iterator[tuple[TokenKind, int, int]]:
        """Yield kind, first bit and value of each token."""
        data, kinds = self.data, _by_byte(self.layout)
        at, end, extends = self._begin, 8 * len(self.data), False
        while at < end:
            value = int.from_bytes(data[at >> 3 : (at >> 3) + 10], "little") >> (at & 7)
            if extends and value & 1:  # a byte more of WAVE_START_LONG
                at += 8
                continue
            kind = kinds[value & 0xFF]
            if kind is None:
                raise LuthierError(
                    f"{self.name}: no token of format {self.layout} begins with {value & 0xFF:#04x}, at bit {at}"
                )
            if at + kind.bits > end:
                self.cut = True
                return
            if kind.name != "NOP":
                extends = self.layout == 4 and kind.name == "WAVE_START_LONG"
            yield kind, at, value & ((1 << kind.bits) - 1)
            at += kind.bits

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens with their times.

        Raises:
            LuthierError: some bits are no token.
        """
        self.lost = 0
        yield from self._word_tokens() if self.layout == WORDS else self._rdna_tokens()

    def _rdna_tokens(self) -> Iterator[Token]:
        time, old = 0, self.layout == 2
        for kind, at, value in self._read():
            time += _field(value, kind.time)
            if kind.name == "TIME":
                time += _LEAST_TIME
            elif kind.name == "TIMESTAMP":
                fields = {name: _field(value, place) for name, place in kind.fields.items()}
                if fields["type"] == 1 if old else not fields["real"]:
                    time += fields["cycles"]
                    self.lost += fields.get("lost", 0)
            elif kind.name == "MISC" and old:
                self.lost += _field(value, kind.fields["lost"])
            yield Token(kind, at, time, value)

    def _word_tokens(self) -> Iterator[Token]:
        """Yield tokens; after a reset of time, the next time stamp has the time."""
        read, pending = self._read(), deque[tuple[TokenKind, int, int]]()
        time, base = 0, None

        def is_reset(kind: TokenKind, value: int) -> bool:
            return kind.name == "MISC" and _field(value, kind.fields["type"]) == _TIME_RESET

        while pending or (token := next(read, None)):
            if pending:
                token = pending.popleft()
            assert token is not None
            kind, at, value = token
            time += _field(value, kind.time) * _LEAST_TIME
            yield Token(kind, at, time, value)
            if is_reset(kind, value):
                seen = 0
                while seen < len(pending) or (following := next(read, None)):
                    if seen == len(pending):
                        assert following is not None
                        pending.append(following)
                    kind, at, value = pending[seen]
                    seen += 1
                    if is_reset(kind, value):
                        break
                    if kind.name == "TIMESTAMP":
                        stamp = _field(value, kind.fields["cycles"])
                        base = stamp - time + _LEAST_TIME if base is None else base
                        time = (stamp - base) // _LEAST_TIME * _LEAST_TIME if stamp > base else time
                        break
            elif kind.name == "MISC" and _field(value, kind.fields["type"]) == _LOST:
                self.lost += 1

    def waves(self) -> Iterator[WaveTrace]:
        """Yield the waves whose instructions were traced, as they end; at last those that did not end.

        Raises:
            LuthierError: some bits are no token, or an instruction is of an unknown class.
        """
        live: dict[tuple[int, int], WaveTrace] = {}
        open_steps: dict[tuple[int, int], deque[int]] = {}
        lost = 0
        rdna_simd = self.simds.bit_length() - 1
        for token in self.tokens():
            if self.lost != lost:
                lost = self.lost
                for wave in live.values():
                    wave.whole = False
            name = token.kind.name
            if name in ("WAVE_START", "WAVE_START_LONG"):
                if self._is_traced(token) and token["count"] not in _SAVED:
                    where = (token["simd"], token["wave"])
                    if where in live:
                        live[where].whole = False
                        yield live[where]
                    live[where], open_steps[where] = WaveTrace(*where, token.time), deque()
            elif name == "WAVE_END":
                where = (token["simd"], token["wave"])
                if self._is_traced(token) and where in live:
                    wave = live.pop(where)
                    wave.end = token.time
                    wave.whole &= not open_steps[wave.simd, wave.slot]
                    yield wave
            elif name == "ISSUE":
                for number in range(10):
                    status, where = token["waves"] >> 2 * number & 3, (token["simd"], number)
                    if where in live and status == _ISSUED:
                        open_steps[where].append(len(live[where].steps))
                        live[where].steps.append(TracedStep(token.time, "unknown", 0))
                    elif where in live and status == _ISSUED_IMMEDIATE:
                        live[where].steps.append(TracedStep(token.time, "immediate", IMMEDIATE))
            elif name == "IMMEDIATE":
                for number in range(16):
                    if token["waves"] >> number & 1:
                        self._add(live.get((rdna_simd, number)), token, IMMEDIATE)
            elif name in ("VALU", "IMMEDIATE_ONE"):
                self._add(live.get((rdna_simd, token["wave"])), token, VALU if name == "VALU" else IMMEDIATE)
            elif name == "INST":
                where = (token["simd"] if self.layout == WORDS else rdna_simd, token["wave"])
                self._add(live.get(where), token, token["code"], open_steps.get(where))
        for wave in live.values():
            wave.whole = False
            yield wave

    def _is_traced(self, token: Token) -> bool:
        if self.layout == WORDS:
            return token["cu"] == self.cu and not token["sh"]
        return token["wgp"] | token["sa"] << 7 == self.cu and bool(self.simds >> token["simd"] & 1)

    def _add(self, wave: WaveTrace | None, token: Token, code: int, open_steps: deque[int] | None = None) -> None:
        """Add an instruction to a wave; on GFX9, say what the oldest of those that were issued is."""
        kind = code_kinds(self.layout).get(code)
        if kind is None:
            raise LuthierError(
                f"{self.name}: format {self.layout} has no class {code} of instructions, at bit {token.at}"
            )
        if wave is None or kind == "other simd":
            return
        if not open_steps:
            if kind != "replay":
                wave.steps.append(TracedStep(token.time, kind, code))
        elif kind == "replay":
            removed = open_steps.popleft()
            del wave.steps[removed]
            open_steps.extend([at - 1 for at in (open_steps.popleft() for _ in range(len(open_steps)))])
        else:
            at = open_steps.popleft()
            wave.steps[at] = TracedStep(wave.steps[at].time, kind, code)
