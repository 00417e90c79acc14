"""Whose instructions devices have counted."""

from __future__ import annotations

import numpy as np
from assembly import assembled, kernel_text
from luthier.run.executed import Executed


def test_kernels_in_assembly_without_a_size() -> None:
    """Their code extends to the next symbol, and belongs to them instead of to unknown functions."""
    code = ".globl k\n.type k,@function\nk:\n s_nop 0\n s_nop 1\n s_endpgm"
    object = assembled(kernel_text(code, "gfx942"), "gfx942")
    (kernel,) = object.kernels.values()
    assert kernel.code_size == 0
    executed = Executed()
    addresses = kernel.entry + 4 * np.arange(3)
    executed.add(object, addresses, np.full(3, 5), np.full(3, 320))
    assert list(executed.rows()) == [(object, "k", 15, 960)]
