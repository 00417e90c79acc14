"""Code objects: the containers they come in, the ELF files they are, and the kernels they hold; reading and writing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from luthier.objects.code_object import CodeObject, Kernel, Relocation, Section, Segment, Symbol
from luthier.objects.container import Image, find_images, find_objects, load_object, load_object_for, load_objects
from luthier.objects.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from luthier.objects.metadata import KernelArgument, Metadata

if TYPE_CHECKING:
    from luthier.objects.editor import ObjectEditor as ObjectEditor
    from luthier.objects.source import SourceFrame as SourceFrame
    from luthier.objects.source import SourceLocation as SourceLocation
    from luthier.objects.source import SourceMap as SourceMap
    from luthier.objects.user_source import user_frame as user_frame

__all__ = [
    "DESCRIPTOR_SIZE",
    "CodeObject",
    "Image",
    "Kernel",
    "KernelArgument",
    "KernelDescriptor",
    "Metadata",
    "ObjectEditor",
    "Relocation",
    "Section",
    "Segment",
    "SourceFrame",
    "SourceLocation",
    "SourceMap",
    "Symbol",
    "find_images",
    "find_objects",
    "load_object",
    "load_object_for",
    "load_objects",
    "user_frame",
]


_LATER = {
    "ObjectEditor": "editor",
    "SourceFrame": "source",
    "SourceLocation": "source",
    "SourceMap": "source",
    "user_frame": "user_source",
}
"""Imported when first used: reading needs none of it."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"luthier.objects.{_LATER[name]}")
    return globals().setdefault(name, getattr(module, name))
