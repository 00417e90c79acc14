"""llvmlite's binding, imported on first use: patching a kernel from cached payloads does not need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import llvmlite.binding as llvm
else:

    class _Binding:
        def __getattr__(self, name: str) -> Any:
            import llvmlite.binding

            return getattr(llvmlite.binding, name)

    llvm = _Binding()

__all__ = ["llvm"]
