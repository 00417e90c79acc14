"""Group the code objects of a file by their source: those of one source are one module."""

from __future__ import annotations

from collections.abc import Sequence

from luthier.errors import ToolError
from luthier.module.description import DeviceContents

_Placed = tuple[str, DeviceContents]
"""Bundle of a code object, or "", and its contents."""


def by_source(objects: Sequence[_Placed], name: str) -> list[list[DeviceContents]]:
    """Return the contents of code objects by source, in order.

    HIP's compilers put all code objects of a source into one offload bundle. So objects of two bundles belong to two
    compilations, whatever their names: clang before release 18 assigns no CUID, and later releases assign the same to
    sources with equal names and options. One of two equal modules is omitted.

    Args:
        name: name of the file in errors.

    Raises:
        ToolError: objects outside of bundles cannot be told apart.
    """
    groups: list[list[_Placed]] = []
    for placed in objects:
        group = next((group for group in groups if any(_of_one_source(placed, other) for other in group)), None)
        if group is None:
            groups.append([placed])
        elif all(not _are_equal(placed[1], contents) for _, contents in group):
            group.append(placed)
    modules = [module for group in groups for module in _apart([contents for _, contents in group], name)]
    return [module for number, module in enumerate(modules) if module not in modules[:number]]


def _of_one_source(placed: _Placed, other: _Placed) -> bool:
    (bundle, contents), (other_bundle, other_contents) = placed, other
    if bundle != other_bundle or contents.cuid != other_contents.cuid:
        return False
    hooks, other_hooks = ({(hook.symbol, hook.location) for hook in one.hooks} for one in (contents, other_contents))
    if hooks and other_hooks:
        return not hooks.isdisjoint(other_hooks)
    return bool(bundle or contents.cuid) or contents.source == other_contents.source


def _are_equal(contents: DeviceContents, other: DeviceContents) -> bool:
    return contents.target == other.target and contents.digest == other.digest


def _apart(contents: Sequence[DeviceContents], name: str) -> list[list[DeviceContents]]:
    """Return the modules in a group; no two objects of a module are for the same target."""
    targets = {one.target for one in contents}
    if len(targets) == len(contents):
        return [[*contents]]
    if len(targets) == 1:
        return [[one] for one in contents]
    hooks = ", ".join(hook.symbol for hook in contents[0].hooks)
    raise ToolError(
        f"there are {len(contents)} code objects for {', '.join(sorted(map(str, targets)))} of sources named "
        f"{contents[0].source} with hooks {hooks}, and nothing tells which belong together: compile each source into "
        "an offload bundle, or with a different -cuid= (clang 18 or later)",
        object=name,
    )
