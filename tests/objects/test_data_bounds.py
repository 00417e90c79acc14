"""Bounds of variables: memory between variables is unowned only if nothing refers to it."""

from __future__ import annotations

import pytest
from assembly import assembled, function, kernel_text
from luthier.objects.data_bounds import data_bounds
from luthier.run.findings.variables import Variables

BETWEEN = {
    "nothing": ("", "", 244),
    "a marker of HIP": (".type __hip_cuid_1,@object\n__hip_cuid_1: .byte 0\n.size __hip_cuid_1, 1", "", 244),
    "bytes without a symbol": (".long 0, 7", "", 0),
    "a symbol without a size": ("label:", "", 0),
    "a symbol without a size, later": (".long 0\nlabel:", "", 4),
    "zeros that code makes the address of": (".Lzeros: .long 0", ".Lzeros", 0),
    "the end, which code makes the address of": ("", "table 12", 0),
    "zeros that data point to": (".Lzeros: .long 0\n.section .data.rel.ro\n.quad .Lzeros\n.data", "", 0),
    "code that makes the next one's address": ("", "next", 244),
}
"""What is behind a variable of 12 bytes, an address that code makes, and how many bytes are nobody's."""
DATA = """
.data
.p2align 8
.type table,@object
table: .long 1, 2, 3
.size table, 12
{between}
.p2align 8
.type next,@object
next: .long 5
.size next, 4
.text
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1201"])
@pytest.mark.parametrize("case", BETWEEN)
def test_between_variables(case: str, target: str) -> None:
    between, made, expected = BETWEEN[case]
    symbol, _, beyond = made.partition(" ")
    low, high = (f"{symbol}@rel32@{half}+{at + int(beyond or 0)}" for half, at in (("lo", 4), ("hi", 12)))
    address = ["s_getpc_b64 s[0:1]", f"s_add_u32 s0, s0, {low}", f"s_addc_u32 s1, s1, {high}"]
    code = function("k", [*(address if made else ()), "s_endpgm"])
    object = assembled(kernel_text(DATA.format(between=between) + code, target), target)
    bounds = {one.name: one for one in data_bounds(object)}
    assert bounds["table"].size == 12
    assert bounds["table"].reserved - 12 == expected
    # Up to the end of the page.
    last = bounds["next"]
    assert (last.size, (last.address + last.reserved) % 4096) == (4, 0)


def test_names_go_with_the_last_connection_of_a_process() -> None:
    """A process that later gets the same number has other variables."""
    object = assembled(kernel_text(DATA.format(between="") + function("k", ["s_endpgm"]), "gfx90a"), "gfx90a")
    variables, process, load_address = Variables(), 7, 1 << 40
    with variables.connected(process):
        with variables.connected(process):
            (table,) = (one for one in variables.of(process, object, load_address) if one.size == 12)
        assert variables.at(process, table.address) == ("table", object.name)
    assert variables.at(process, table.address) == ("", "")
