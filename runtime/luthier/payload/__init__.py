"""A hook with its arguments, compiled once to a template of instructions with symbolic registers."""

from __future__ import annotations

from luthier.payload.arguments import (
    Argument,
    ComputedArgument,
    ConstantArgument,
    EveryWorkGroup,
    Input,
    LaunchArgument,
    RegisterArgument,
)
from luthier.payload.calls import Call, Intrinsic, Lowering
from luthier.payload.codegen import generate
from luthier.payload.reading import make_template
from luthier.payload.template import Group, Template, TemplateInput, TemplateOutput

__all__ = [
    "Argument",
    "Call",
    "ComputedArgument",
    "ConstantArgument",
    "EveryWorkGroup",
    "Group",
    "Input",
    "Intrinsic",
    "LaunchArgument",
    "Lowering",
    "RegisterArgument",
    "Template",
    "TemplateInput",
    "TemplateOutput",
    "generate",
    "make_template",
]
