"""LDS for hooks: the `__shared__` variables of a module, above all that the kernel has.

How much a work-group of the application has, static and dynamic, is known only when it is launched: it is in the
dispatch packet. The patched kernel asks for so many bytes more (`LdsLayout.reserved`), whoever launches it adds them,
and what the packet says then ends with the hooks' part. So a payload computes the place of its variables from the
packet, which is launch state (`luthier.payload.launch_state`).

Source: HSA Platform System Architecture Specification, "Kernel dispatch packet": ``group_segment_size``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from luthier.payload.calls import Lowering
from luthier.payload.launch_state import packet_field

GROUP_SEGMENT_SIZE = 28
"""Byte offset in the dispatch packet."""


@dataclass(frozen=True)
class LdsLayout:
    """Where each variable lies in the hooks' part."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """Symbol -> byte offset."""
    reserved: int = 0
    """Bytes that a work-group needs more, with what aligning the part may take."""
    alignment: int = 1
    """Of the part, in bytes."""

    @classmethod
    def of(cls, variables: Mapping[str, tuple[int, int]]) -> LdsLayout:
        """A layout of variables, symbol -> (size, alignment) in bytes."""
        offsets: dict[str, int] = {}
        end = 0
        for symbol, (size, align) in variables.items():
            offsets[symbol] = -(-end // align) * align
            end = offsets[symbol] + size
        most = max((align for _, align in variables.values()), default=1)
        return cls(offsets, -(-end // most) * most + most if end else 0, most)


NO_LDS = LdsLayout()

_SPACE = re.compile(r"addrspace\((\d+)\)")
_HIDDEN_SPACE = re.compile(r"addrspace\[(\d+)\]")
_CONSTANT = re.compile(
    r"\b(?P<operation>getelementptr|addrspacecast|ptrtoint|inttoptr|bitcast|trunc|add|sub|xor)"
    r"(?P<flags>(?: (?:inbounds|nuw|nsw|nusw))*) \((?P<operands>[^()]*(?:@luthier\.lds\.|%luthier\.lds\.)[^()]*)\)"
)
"""A constant expression of an LDS variable's address, or of one that has become an instruction."""


def lower_lds(body: str, layout: LdsLayout, lowering: Lowering) -> tuple[str, list[str]]:
    """A payload's body in which LDS variables are addresses computed from the packet, and the IR that computes them,
    for its beginning. Constant expressions of addresses become instructions there."""
    used = [name for name in layout.offsets if _name(name).search(body)]
    if not used:
        return body, []
    body = _SPACE.sub(r"addrspace[\1]", body)
    for number, name in enumerate(used):
        body = _name(name).sub(f"@luthier.lds.{number}.", body)
    size, below, base = lowering.fresh(), lowering.fresh(), lowering.fresh()
    lines = [
        *packet_field(lowering, "i32", GROUP_SEGMENT_SIZE, size),
        f"{below} = sub i32 {size}, {layout.reserved - layout.alignment}",
        f"{base} = and i32 {below}, -{layout.alignment}",
    ]
    for number, name in enumerate(used):
        place = lowering.fresh()
        lines.append(f"{place} = add i32 {base}, {layout.offsets[name]}")
        lines.append(f"%luthier.lds.{number}. = inttoptr i32 {place} to ptr addrspace[3]")
    made = 0
    while found := _CONSTANT.search(body):
        value = f"%luthier.lds.made.{made}."
        made += 1
        operands = found["operands"].replace("@luthier.lds.", "%luthier.lds.")
        lines.append(f"{value} = {found['operation']}{found['flags']} {operands}")
        body = body[: found.start()] + value + body[found.end() :]
    body = body.replace("@luthier.lds.", "%luthier.lds.")
    return _HIDDEN_SPACE.sub(r"addrspace(\1)", body), [_HIDDEN_SPACE.sub(r"addrspace(\1)", f"  {one}") for one in lines]


def _name(symbol: str) -> re.Pattern[str]:
    """A global's name in IR."""
    return re.compile(rf'@(?:"{re.escape(symbol)}"|{re.escape(symbol)}(?![\w.$-]))')
