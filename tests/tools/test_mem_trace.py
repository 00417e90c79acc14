"""What the memory tracer says where it traces nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from assembly import assembled, function, kernel_text
from luthier import Tool
from luthier.cli.common import check_tools
from luthier.errors import ToolError
from luthier.lifting import lift
from luthier.tool import ToolGroup
from luthier.tool.task import InstrumentationTask


@pytest.mark.parametrize(
    ("spaces", "reason"),
    [
        ("global", "none of 1 load+store of global has an address that can be told, the first: 'tensor_load_to_lds"),
        ("lds", "there is no load+store of lds"),
    ],
)
def test_it_says_why_nothing_is_traced(shipped: Callable[..., Tool], spaces: str, reason: str) -> None:
    """A kernel that copies whole parts of tensors: descriptors say where they are."""
    lines = ["tensor_load_to_lds s[8:11], s[16:23]", "s_wait_tensorcnt 0x0", "s_endpgm"]
    object = assembled(kernel_text(function("k", lines), "gfx1250"), "gfx1250")
    tool = ToolGroup([shipped("mem_trace", spaces=spaces, kinds="load+store")])
    tool.instrument(InstrumentationTask(lift(object, "k")))
    with pytest.raises(ToolError, match=f"inserted nothing into k: {re.escape(reason)}"):
        check_tools(tool, object, ["k"])
