"""Kernels whose launches may need more LDS than their descriptors give.

They may not if the metadata of code object version 6 lists hidden arguments, which are then complete, without
``hidden_dynamic_lds_size``, and no argument is a ``dynamic_shared_pointer``. Before version 6, compilers may omit the
former, and all compilers omit all hidden arguments of kernels that need none.
"""

from __future__ import annotations

from luthier.objects.code_object import CodeObject, Kernel

_TELLS_DYNAMIC_LDS = 6
"""First code object version with complete hidden arguments, if there are any."""


def has_dynamic_lds(object: CodeObject, kernel: Kernel) -> bool:
    """Return whether launches of a kernel may need more LDS than its descriptor gives."""
    kinds = {argument.value_kind for argument in kernel.arguments}
    if object.abi < _TELLS_DYNAMIC_LDS or not any(argument.hidden for argument in kernel.arguments):
        return True
    return not kinds.isdisjoint(("hidden_dynamic_lds_size", "dynamic_shared_pointer"))
