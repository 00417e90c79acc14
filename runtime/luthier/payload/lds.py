"""LDS for hooks: the `__shared__` variables of a module, above all that the kernel has.

How much a work-group of the application has, static and dynamic, is known only when it is launched: it is in the
dispatch packet. The patched kernel asks for so many bytes more (`LdsLayout.reserved`), whoever launches it adds them,
and what the packet says then ends with the hooks' part. So a payload computes the place of its variables from the
packet, which is launch state (`luthier.payload.launch_state`).

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
    """Offset of each variable in the hooks' part of LDS."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """Symbol -> byte offset."""
    reserved: int = 0
    """Bytes that a work-group needs more, with what aligning the part may take."""
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
    """Return a payload's body in which LDS variables are computed addresses, and IR for its beginning.

    The IR computes the addresses from the packet. Constant expressions of addresses become instructions there.
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
