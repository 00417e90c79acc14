"""Kernels that launches may be meant to give more LDS than their descriptors say.

They are not meant to where metadata of code object version 6 have hidden arguments, which then are all that the kernel
may ask for, no ``hidden_dynamic_lds_size`` among them, and no argument that is a ``dynamic_shared_pointer``. Before
version 6 compilers may leave the former out, and all of them leave out all hidden arguments where a kernel needs none.
"""

from __future__ import annotations

from luthier.objects.code_object import CodeObject, Kernel

_TELLS_DYNAMIC_LDS = 6
"""Code object version from which on compilers say which kernels use dynamic LDS, if they list hidden arguments."""


def has_dynamic_lds(object: CodeObject, kernel: Kernel) -> bool:
    """Return whether launches may be meant to give a kernel more LDS than its descriptor says."""
    kinds = {argument.value_kind for argument in kernel.arguments}
    if object.abi < _TELLS_DYNAMIC_LDS or not any(argument.hidden for argument in kernel.arguments):
        return True
    return not kinds.isdisjoint(("hidden_dynamic_lds_size", "dynamic_shared_pointer"))
