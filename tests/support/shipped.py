"""The tools of examples/tools, from their sources, with device modules compiled by the tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from kept import ROOT
from luthier.module import ToolModule
from luthier.module.tool_module import loaded_by
from luthier.tool import Tool

FOLDER = ROOT / "examples" / "tools"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/pyproject.toml"))


def device_of(make_module: Callable[..., ToolModule], name: str, targets: Sequence[str]) -> ToolModule | None:
    """Return the device module of a tool; None if it has none."""
    source = FOLDER / name / f"luthier_{name}" / "device.hip"
    if not source.exists():
        return None
    lines = source.read_text().splitlines()
    body = "\n".join(line for line in lines if "hip_runtime" not in line and "MARK_" not in line)
    return make_module(body, *targets, both_wave_sizes=True)


def tool_of(make_module: Callable[..., ToolModule], name: str, targets: Sequence[str], **options: object) -> Tool:
    """Return a tool by its name, ready to instrument."""
    package, made = f"luthier_{name}", device_of(make_module, name, targets)
    sys.path.insert(0, str(FOLDER / name))
    try:
        for module in [one for one in sys.modules if one.partition(".")[0] == package]:
            del sys.modules[module]
        with loaded_by(lambda package, name: made):
            contents = vars(importlib.import_module(package))
    finally:
        sys.path.remove(str(FOLDER / name))
    classes = (one for one in contents.values() if isinstance(one, type) and issubclass(one, Tool))
    (cls,) = (one for one in classes if one.__module__ == package)
    cls.name = name
    return cls(**options)
