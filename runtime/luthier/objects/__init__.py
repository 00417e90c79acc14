"""Code objects: reading and writing of containers, ELF files and kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.objects.code_object import CodeObject as CodeObject
    from luthier.objects.code_object import Kernel as Kernel
    from luthier.objects.code_object import Relocation as Relocation
    from luthier.objects.code_object import Section as Section
    from luthier.objects.code_object import Segment as Segment
    from luthier.objects.code_object import Symbol as Symbol
    from luthier.objects.container import DeviceImage as DeviceImage
    from luthier.objects.container import choose_images as choose_images
    from luthier.objects.container import find_images as find_images
    from luthier.objects.container import find_objects as find_objects
    from luthier.objects.container import load_object as load_object
    from luthier.objects.container import load_object_for as load_object_for
    from luthier.objects.container import load_objects as load_objects
    from luthier.objects.descriptor import DESCRIPTOR_SIZE as DESCRIPTOR_SIZE
    from luthier.objects.descriptor import KernelDescriptor as KernelDescriptor
    from luthier.objects.editor import ObjectEditor as ObjectEditor
    from luthier.objects.metadata import KernelArgument as KernelArgument
    from luthier.objects.metadata import Metadata as Metadata
    from luthier.objects.source import SourceFrame as SourceFrame
    from luthier.objects.source import SourceLocation as SourceLocation
    from luthier.objects.source import SourceMap as SourceMap
    from luthier.objects.user_source import user_frame as user_frame

__getattr__ = lazy_names(__name__)
