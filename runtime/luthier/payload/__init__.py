"""A hook with its arguments, compiled once to a template of instructions with symbolic registers."""

from __future__ import annotations

from luthier.payload.calls import Call, Intrinsic, Lowering
from luthier.payload.codegen import (
    Argument,
    ComputedArgument,
    ConstantArgument,
    EveryWorkGroup,
    Input,
    LaunchArgument,
    RegisterArgument,
    generate,
)
from luthier.payload.template import Group, Template, TemplateInput, TemplateOutput, make_template

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
