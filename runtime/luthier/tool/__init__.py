"""Classes and functions for authors of tools: tools, the tasks they fill, hooks with arguments, points, edits, counts.

Its modules are imported when they are first used: a command that only lists tools needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.tool.task import InstrumentationTask as InstrumentationTask
    from luthier.tool.task import reg as reg
    from luthier.tool.tool import ENTRY_POINT_GROUP as ENTRY_POINT_GROUP
    from luthier.tool.tool import ExecutionCounts as ExecutionCounts
    from luthier.tool.tool import TaskShare as TaskShare
    from luthier.tool.tool import Tool as Tool
    from luthier.tool.tool import ToolGroup as ToolGroup
    from luthier.tool.tool import find_entry_points as find_entry_points
    from luthier.tool.tool import find_tool as find_tool
    from luthier.tool.tool import parse_tool as parse_tool
    from luthier.tool.tool import parse_tools as parse_tools
    from luthier.tool.tool import tool_class as tool_class

__getattr__ = lazy_names(__name__)
