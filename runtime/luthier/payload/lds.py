"""LDS for hooks: the `__shared__` variables of a module, after all LDS of the kernel.

The LDS of a work-group of the application, static and dynamic, is known only at launch, from the dispatch packet. The
patched kernel requests further bytes (`LdsLayout.reserved`), which the launcher adds; the size in the packet then
includes the hooks' part at its end. A payload therefore computes the addresses of its variables from the packet, which
is launch state (`luthier.payload.launch_state`).

Source: HSA Platform System Architecture Specification, "Kernel dispatch packet": ``group_segment_size``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from luthier.payload.calls import Lowering
from luthier.payload.ir import names_in, replace_globals, symbol_of
from luthier.payload.launch_state import packet_field

GROUP_SEGMENT_SIZE = 28
"""Byte offset in the dispatch packet."""


class LdsLayout(Struct, frozen=True):
    """Offsets of variables in the hooks' part of LDS."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """Symbol -> byte offset."""
    reserved: int = 0
    """Bytes that a work-group needs in addition, including padding for the alignment of the part."""
    alignment: int = 1
    """Alignment of the part, in bytes."""

    @classmethod
    def of(cls, variables: Mapping[str, tuple[int, int]]) -> LdsLayout:
        """Return a layout of variables, symbol -> (size, alignment) in bytes."""
        offsets: dict[str, int] = {}
        end = 0
        for symbol, (size, align) in variables.items():
            offsets[symbol] = -(-end // align) * align
            end = offsets[symbol] + size
        most = max((align for _, align in variables.values()), default=1)
        return cls(offsets, -(-end // most) * most + most if end else 0, most)


NO_LDS = LdsLayout()


def lower_lds(body: str, layout: LdsLayout, lowering: Lowering) -> tuple[str, list[str]]:
    """Replace LDS variables in a payload's body by addresses. Return it with IR for its beginning.

    The IR computes the addresses from the packet, and contains constant expressions of addresses as instructions.
    """
    spelled = {symbol_of(name): name for name in names_in(body) if name.startswith("@")} if layout.offsets else {}
    used = [name for name in layout.offsets if name in spelled]
    if not used:
        return body, []
    size, below, base = lowering.fresh(), lowering.fresh(), lowering.fresh()
    lines = [
        *packet_field(lowering, "i32", GROUP_SEGMENT_SIZE, size),
        f"{below} = sub i32 {size}, {layout.reserved - layout.alignment}",
        f"{base} = and i32 {below}, -{layout.alignment}",
    ]
    addresses: dict[str, str] = {}
    for name in used:
        place, address = lowering.fresh(), lowering.fresh()
        lines.append(f"{place} = add i32 {base}, {layout.offsets[name]}")
        lines.append(f"{address} = inttoptr i32 {place} to ptr addrspace(3)")
        addresses[spelled[name]] = address

    def define(instruction: str) -> str:
        value = lowering.fresh()
        lines.append(f"{value} = {instruction}")
        return value

    body = "\n".join(replace_globals(line, addresses, define) if "@" in line else line for line in body.split("\n"))
    return body, [f"  {line}" for line in lines]
