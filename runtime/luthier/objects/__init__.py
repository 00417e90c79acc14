"""Code objects: the containers they come in, the ELF files they are, and the kernels they hold; reading and writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luthier.objects.code_object import CodeObject, Kernel, Relocation, Section, Segment, Symbol
from luthier.objects.container import Image, find_images, find_objects, load_object, load_object_for, load_objects
from luthier.objects.descriptor import DESCRIPTOR_SIZE, KernelDescriptor
from luthier.objects.metadata import KernelArgument, Metadata

if TYPE_CHECKING:
    from luthier.objects.editor import ObjectEditor as ObjectEditor

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
    "Symbol",
    "find_images",
    "find_objects",
    "load_object",
    "load_object_for",
    "load_objects",
]


def __getattr__(name: str) -> Any:
    if name != "ObjectEditor":  # imported when first used: reading needs none of it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from luthier.objects.editor import ObjectEditor

    return globals().setdefault(name, ObjectEditor)
