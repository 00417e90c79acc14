"""Payloads: a hook with its arguments is compiled once to a template of instructions with symbolic registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.payload.arguments import Argument as Argument
    from luthier.payload.arguments import ComputedArgument as ComputedArgument
    from luthier.payload.arguments import ConstantArgument as ConstantArgument
    from luthier.payload.arguments import EveryWorkGroup as EveryWorkGroup
    from luthier.payload.arguments import Input as Input
    from luthier.payload.arguments import LaunchArgument as LaunchArgument
    from luthier.payload.arguments import RegisterArgument as RegisterArgument
    from luthier.payload.calls import Intrinsic as Intrinsic
    from luthier.payload.calls import IntrinsicCall as IntrinsicCall
    from luthier.payload.calls import Lowering as Lowering
    from luthier.payload.codegen import generate as generate
    from luthier.payload.reading import make_template as make_template
    from luthier.payload.template import Group as Group
    from luthier.payload.template import Template as Template
    from luthier.payload.template import TemplateInput as TemplateInput
    from luthier.payload.template import TemplateOutput as TemplateOutput

__getattr__ = lazy_names(__name__)
