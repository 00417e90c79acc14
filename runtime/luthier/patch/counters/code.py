"""Code of counters: initialises them, adds to them, and adds them to memory when a wave ends.

Counters are in registers that the application never uses. The code therefore only has to preserve SCC and EXEC, and at
the end of a wave may overwrite dead registers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.hazards.insertion import wait_states
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa import Isa
from luthier.isa.registers import VCC
from luthier.patch.counters.assembly import WORD, assemble_with, halves, is_literal, set_scalars, word
from luthier.patch.payloads.code import BoundPayload, join
from luthier.patch.registers.copies import unit_text
from luthier.payload.arguments import PayloadAssembly
from luthier.payload.reading import make_template
from luthier.payload.template import Template

LARGEST_LANE_WEIGHT = 1 << 24
"""A wave adds at most 64 times this at once, which must stay below 2^31."""


_LARGEST_OFFSET = 2047
"""Maximum offset of global memory instructions in all generations."""


class Held(Struct, frozen=True):
    """The registers that hold a counter while a wave runs."""

    low: int
    """Register unit: of an SGPR, or of a VGPR if `lane` is given."""
    high: int | None
    """Register unit of its upper 32 bits, if any."""
    lane: int | None = None
    """The lane of the VGPRs."""


class Batch(Struct, frozen=True):
    """Counters that are added to memory together; lane N adds the counter at position N."""

    held: tuple[Held | int | None, ...]
    """Registers of the counters, or their values; None for single bits, which come first. If one counter is in a VGPR,
    all are, each in the lane of its position."""
    offsets: tuple[int, ...]
    """Bytes from the symbol to the cell of each."""
    symbol: str
    bits: int | None
    """SGPR unit whose bit N is the counter at position N."""

    @property
    def in_a_row(self) -> bool:
        """Return whether the cells are consecutive in memory."""
        return all(offset == self.offsets[0] + 8 * lane for lane, offset in enumerate(self.offsets))


class CounterCode:
    """Generator of code for one kernel's counters."""

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._target = isa.target.target
        self._wide = isa.wave_size == 64
        self._exec = "exec" if self._wide else "exec_lo"
        wait = self._target.lane_mask_wait
        self._settle = [] if wait is None else [wait]
        """Waits between vector and scalar instructions that read or write each other's SGPRs."""
        self._between_vectors = hazard_model(self._target, isa.wave_size).between_vectors
        self.keeps_pairs = self._target.scalar_wait is not None
        """Whether SGPRs that vector instructions read must not share a pair with SGPRs that are written."""

    # Adding

    def add(
        self,
        held: Held,
        amount: int,
        *,
        lanes: bool,
        scc_live: bool,
        temporaries: Sequence[int],
        read: bool,
        first: bool = False,
    ) -> BoundPayload:
        """Return code that adds `amount`, or `amount` times the number of active lanes.

        Args:
            first: whether to set the counter instead of adding to it.
            scc_live: whether SCC must be preserved.
            temporaries: SGPR units, as many as `needed_temporaries` returns.
            read: whether vector instructions may have read the temporaries.
        """
        if self._at_once(held, amount, lanes=lanes):
            pair = f"s[{held.low}:{held.high}]"
            return self.assemble([f"s_add_nc_u64 {pair}, {pair}, {amount}"])
        free = list(map(unit_text, temporaries))
        lines, last = [], []
        settle = self._settle if self.keeps_pairs and read else []
        if scc_live:
            kept = free.pop()
            lines += [f"s_cselect_b32 {kept}, 1, 0", *settle]
            last.append(f"s_cmp_lg_u32 {kept}, 0")
        source = ""
        at_once = first and lanes and held.lane is None and amount > 0
        if lanes:
            source = unit_text(held.low) if at_once else free.pop()
            lines += [f"s_bcnt1_i32_b{self._isa.wave_size} {source}, {self._exec}", *settle]
            if abs(amount) != 1:
                lines += [f"s_mul_i32 {source}, {source}, {abs(amount)}", *settle]
        if at_once:
            pass
        elif held.lane is None:
            low = unit_text(held.low)
            high = None if held.high is None else unit_text(held.high)
            lines += self._sum(low, high, amount, source)
        else:
            low = free.pop()
            high = None if held.high is None else free.pop()
            pairs = [(low, held.low)] + ([] if high is None else [(high, held.high or 0)])
            reads = [f"v_readlane_b32 {to}, {unit_text(of)}, {held.lane}" for to, of in pairs]
            writes = [f"v_writelane_b32 {unit_text(of)}, {to}, {held.lane}" for to, of in pairs]
            sum_of_them = self._sum(low, high, amount, source)
            # Like LLVM's hazard recognizer, which ignores later writes of the register by scalar instructions.
            states = wait_states(max(self._between_vectors - (2 * len(pairs) - 1), 0))
            lines += [*self._settle, *reads, *self._settle, *sum_of_them, *states]
            lines += [*self._settle, *writes, *self._settle]
        return self.assemble([*lines, *last])

    def _at_once(self, held: Held, amount: int, *, lanes: bool) -> bool:
        """Return whether one instruction performs the 64-bit addition without changing SCC."""
        aligned = held.lane is None and held.low % 2 == 0 and held.high == held.low + 1
        return self._target.adds_64_bits and aligned and not lanes and -16 <= amount <= 64

    @staticmethod
    def needed_temporaries(held: Held, *, lanes: bool, scc_live: bool) -> int:
        """Return the maximum number of SGPRs that `add` needs, besides the counter."""
        return scc_live + lanes + (0 if held.lane is None else 1 if held.high is None else 2)

    @staticmethod
    def _sum(low: str, high: str | None, amount: int, source: str) -> list[str]:
        if source:
            add, carry = ("s_add_u32", "s_addc_u32") if amount > 0 else ("s_sub_u32", "s_subb_u32")
            return [f"{add} {low}, {low}, {source}"] + ([] if high is None else [f"{carry} {high}, {high}, 0"])
        if high is None:
            signed = ((amount & WORD) ^ 1 << 31) - (1 << 31)
            if -(1 << 15) <= signed < 1 << 15:
                return [f"s_addk_i32 {low}, {signed}"]
            return [f"s_add_u32 {low}, {low}, {word(amount)}"]
        return [f"s_add_u32 {low}, {low}, {word(amount)}", f"s_addc_u32 {high}, {high}, {word(amount >> 32)}"]

    # At kernel entry

    def start(
        self, held: Sequence[tuple[Held, int]], lanes: Sequence[tuple[Held, int, bool]], temporary: Sequence[int]
    ) -> BoundPayload:
        """Return code that initialises counters at the kernel's entry, where SCC and VCC are free.

        Args:
            held: each counter with its initial value.
            lanes: each counter that counts active lanes at entry, with its weight, and whether it counts nothing else.
            temporary: further free SGPR units.
        """
        begun = {counter.low for counter, amount, only in lanes if only and counter.lane is None and amount > 0}
        values: dict[int, int] = {}
        vectors: dict[int, dict[int, int]] = {}
        for counter, initial in held:
            for unit, value in ((counter.low, initial & WORD), (counter.high, initial >> 32 & WORD)):
                if unit is None:
                    continue
                if counter.lane is None:
                    if unit not in begun:
                        values[unit] = value
                else:
                    vectors.setdefault(unit, {})[counter.lane] = value
        lines = set_scalars(values)
        for unit, by_lane in sorted(vectors.items()):
            name = unit_text(unit)
            if len(by_lane) > 4:  # VCC is free at the kernel's entry
                kept, ones = ("vcc", "s_mov_b64") if self._wide else ("vcc_lo", "s_mov_b32")
                lines += [f"{ones} {kept}, {self._exec}", f"{ones} {self._exec}, -1", f"v_mov_b32 {name}, 0"]
                lines += [f"{ones} {self._exec}, {kept}"]
                by_lane = {lane: value for lane, value in by_lane.items() if value}
            for lane, value in sorted(by_lane.items()):
                if -16 <= value <= 64:
                    lines.append(f"v_writelane_b32 {name}, {value}, {lane}")
                else:
                    lines += [f"s_mov_b32 vcc_lo, {word(value)}", f"v_writelane_b32 {name}, vcc_lo, {lane}"]
                    lines += self._settle
        pieces = [self.assemble(lines)]
        for counter, amount, only in lanes:
            temporaries = [*temporary, *VCC[::-1]]
            pieces.append(
                self.add(counter, amount, lanes=True, scc_live=False, temporaries=temporaries, read=True, first=only)
            )
        return join(pieces)

    # At the end of a wave

    def flush(
        self,
        batch: Batch,
        vectors: tuple[int, int, int, int],
        scalars: int,
        waits: Sequence[str],
        *,
        fresh: bool,
        take_back: bool = False,
    ) -> BoundPayload:
        """Return code that adds counters to cells in memory by one atomic operation.

        It overwrites EXEC and SCC, and VCC if a counter's value is known.

        Args:
            vectors: VGPR units: two adjacent pairs.
            scalars: first unit of two aligned SGPRs.
            waits: assembly at the beginning.
            fresh: whether only scalar instructions have ever used `scalars`.
            take_back: whether to subtract the counters instead.
        """
        forms = [self._flush_together(batch, vectors, scalars, fresh=fresh)]
        in_lanes = batch.bits is not None or any(
            isinstance(held, Held) and held.lane is not None for held in batch.held
        )
        near = max(batch.offsets) - min(batch.offsets) <= _LARGEST_OFFSET
        if len(batch.held) == 1 or (near and not in_lanes):
            forms.append(self._flush_each(batch, vectors))
        lines = min(forms, key=len)
        if take_back:
            lines = [line.replace("global_atomic_add_x2", "global_atomic_sub_x2") for line in lines]
        return self.assemble([*self._target.inserted_waits, *waits, *lines], {"luthier_cell": batch.symbol})

    def _flush_together(
        self, batch: Batch, vectors: tuple[int, int, int, int], scalars: int, *, fresh: bool
    ) -> list[str]:
        """Return assembly that adds one counter per lane to memory by one atomic operation."""
        count, wave = len(batch.held), self._isa.wave_size
        low, high, at, _ = map(unit_text, vectors)
        first, pair = unit_text(scalars), f"s[{scalars}:{scalars + 1}]"
        base = min(batch.offsets)  # the register that is added to an address is unsigned
        mask = f"s_mov_b{wave} {self._exec}, -1" if count == wave else f"s_bfm_b{wave} {self._exec}, {count}, 0"
        lines = [mask, f"v_mbcnt_lo_u32_b32 {at}, -1, 0"]
        lines += [f"v_mbcnt_hi_u32_b32 {at}, -1, {at}"] if count > 32 else []
        lines += self._lanes_of(batch, at, low, high)
        if batch.in_a_row:
            lines.append(f"v_lshlrev_b32 {at}, 3, {at}")
        else:
            for lane, offset in enumerate(batch.offsets):
                lines += [f"s_mov_b32 {first}, {hex(offset - base)}", *self._settle]
                lines += [f"v_writelane_b32 {at}, {first}, {lane}", *self._settle]
            fresh = False
        return [*lines, *self.address(scalars, base, fresh=fresh), self._atomic(at, low, pair)]

    def _flush_each(self, batch: Batch, vectors: Sequence[int]) -> list[str]:
        """Return assembly that adds counters to memory one after another, in lane 0 and without SGPRs."""
        low, high, to, above = map(unit_text, vectors)
        base = min(batch.offsets)
        lines = [f"s_mov_b{self._isa.wave_size} {self._exec}, 1"]
        lines += [f"v_mov_b32 {unit}, {half}" for unit, half in zip((to, above), halves(base), strict=True)]
        top = ""
        for held, offset in zip(batch.held, batch.offsets, strict=True):
            if top and self._target.replay_wait is not None:
                lines.append(self._target.replay_wait)
            value, above_it = self._both_halves(batch, held)
            lines += self._set_two(low, value, high, above_it if above_it != top else None)
            top = above_it
            lines.append(self._atomic(f"v[{to[1:]}:{above[1:]}]", low, "off", offset - base))
        return lines

    def _both_halves(self, batch: Batch, held: Held | int | None) -> tuple[str, str]:
        """Return the sources for lane 0 of the two VGPRs of a counter."""
        if isinstance(held, int):
            return word(held), word(held >> 32)
        if held is None:
            assert batch.bits is not None  # a bit is in a word
            return unit_text(batch.bits), "0"
        return unit_text(held.low), "0" if held.high is None else unit_text(held.high)

    def _set_two(self, low: str, value: str, high: str, top: str | None) -> list[str]:
        """Return assembly that sets two adjacent VGPRs."""
        sources = [f"v_mov_b32 {low}, {value}", *([] if top is None else [f"v_mov_b32 {high}, {top}"])]
        both = len(sources) == 2 and "v" not in value + (top or "")
        if both and self._target.moves_two(self._isa.wave_size) and not (is_literal(value) and is_literal(top or "")):
            return [" :: ".join(source.replace("v_mov", "v_dual_mov") for source in sources)]
        return sources

    def _lanes_of(self, batch: Batch, at: str, low: str, high: str) -> list[str]:
        """Return assembly that moves the counters of a batch into lanes of VGPRs; `at` holds the lane's number."""
        vector = next((held for held in batch.held if isinstance(held, Held) and held.lane is not None), None)
        if vector is not None:
            top = "0" if vector.high is None else unit_text(vector.high)
            return [f"v_mov_b32 {low}, {unit_text(vector.low)}", f"v_mov_b32 {high}, {top}"]
        # If every lane is written, no initial value is needed.
        lines = [] if batch.bits is None else [f"v_bfe_u32 {low}, {unit_text(batch.bits)}, {at}, 1"]
        lines.append(f"v_mov_b32 {high}, 0")
        for lane, held in enumerate(batch.held):
            if held is None:
                continue
            value, top = self._both_halves(batch, held)
            for unit, source in ((low, value), (high, top)):
                if unit == high and source == "0":
                    continue
                if is_literal(source):
                    lines += [f"s_mov_b32 vcc_lo, {source}", *self._settle]
                    source = "vcc_lo"
                lines.append(f"v_writelane_b32 {unit}, {source}, {lane}")
                lines += self._settle if source == "vcc_lo" else []
        return lines

    def address(self, scalars: int, offset: int, *, fresh: bool = False) -> list[str]:
        """Return assembly that loads the address of `luthier_cell` + `offset`, which the loader fills in.

        Args:
            scalars: first unit of two aligned SGPRs for the address.
            fresh: whether vector instructions have never read these registers. Otherwise scalar writes to them must
                settle before they are read (RDNA4 ISA, "Manually Inserted Wait States").
        """
        settle = [] if fresh else self._settle
        both = zip((scalars, scalars + 1), halves(offset), strict=True)
        return [line for unit, half in both for line in (f"s_mov_b32 {unit_text(unit)}, {half}", *settle)]

    def _relative_address(self, scalars: int, offset: int) -> list[str]:
        """Return assembly that computes the address from the program counter, for payloads of hooks."""
        first, second = unit_text(scalars), unit_text(scalars + 1)
        pair = f"s[{scalars}:{scalars + 1}]"
        low, high = 4, 12
        if not self._target.getpc_clears_high:
            lines = [f"s_getpc_b64 {pair}"]
            settle: list[str] = []
        else:
            settle = self._settle
            low += 4 + 4 * len(settle)
            high = low + 8 + 4 * len(settle)
            lines = [f"s_getpc_b64 {pair}", *settle, f"s_sext_i32_i16 {second}, {second}"]
        return [
            *lines,
            f"s_add_u32 {first}, {first}, luthier_cell@rel32@lo+{low + offset}",
            *settle,
            f"s_addc_u32 {second}, {second}, luthier_cell@rel32@hi+{high + offset}",
            *settle,
        ]

    def _atomic(self, at: str, data: str, pair: str, offset: int = 0) -> str:
        number = int(data[1:])
        beyond = f" offset:{offset}" if offset else ""
        return f"global_atomic_add_x2 {at}, v[{number}:{number + 1}], {pair}{beyond} {self._target.device_scope}"

    # Without a register for the counter

    def direct(self, amount: int, symbol: str, offset: int, *, lanes: bool) -> Template:
        """Return a payload that adds to a cell in memory directly. Like a hook's, its registers depend on the point."""
        return _direct(self, amount, symbol, offset, lanes)

    def direct_template(self, amount: int, symbol: str, offset: int, *, lanes: bool) -> Template:
        """Create the template of `direct`."""
        wave = self._isa.wave_size
        move = f"s_mov_b{wave}"
        saved = "s[8:9]" if self._wide else "s8"
        lines = [*self._target.wait_for_every_load, f"{move} {saved}, {self._exec}"]
        low, high = word(amount), word(amount >> 32)
        if lanes:
            settle = self._settle if self.keeps_pairs else []
            lines += [f"s_bcnt1_i32_b{wave} s10, {self._exec}", *settle]
            if amount != 1:
                lines += [f"s_mul_i32 s10, s10, {word(amount)}", *settle]
            lines.append("s_ashr_i32 s11, s10, 31")
            low, high = "s10", "s11"
        lines += [f"{move} {self._exec}, 1", *self._settle, "v_mov_b32 v2, 0"]
        lines += [f"v_mov_b32 v0, {low}", f"v_mov_b32 v1, {high}"]
        lines += self._relative_address(4, offset)
        lines += [self._atomic("v2", "v0", "s[4:5]"), f"{move} {self._exec}, {saved}", "s_setpc_b64 s[30:31]"]
        body = "\n".join(f"\t{line}" for line in lines)
        text = f"{_FUNCTION}{body}\n.Lfunc_end0:\n{_NO_STACK}"
        template = make_template(PayloadAssembly(text, (), (), True, True), "count", self._isa)
        return replace(template, fixups=tuple(replace(fixup, symbol=symbol) for fixup in template.fixups))

    def assemble(self, lines: Sequence[str], symbols: Mapping[str, str] | None = None) -> BoundPayload:
        """Return assembled, position-independent code.

        Args:
            symbols: symbol in the text -> its meaning.
        """
        return assemble_with(self._isa, "\n".join(lines), tuple((symbols or {}).items()))


_FUNCTION = "\t.type luthier.payload,@function\nluthier.payload:\n"
_NO_STACK = "".join(
    f"\t.set luthier.payload.{name}, 0\n"
    for name in ("private_seg_size", "has_dyn_sized_stack", "has_recursion", "has_indirect_call")
)
"""LLVM's symbols that describe a function's private memory, all 0."""


@functools.lru_cache(maxsize=4096)
def _direct(code: CounterCode, amount: int, symbol: str, offset: int, lanes: bool) -> Template:
    return code.direct_template(amount, symbol, offset, lanes=lanes)
