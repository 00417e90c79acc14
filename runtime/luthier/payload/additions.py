"""Variables that hooks do nothing with but add to: nobody on the device sees what is in them, so that part of a sum may
be somewhere else while kernels run."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping

from luthier.isa.targets import TargetId
from luthier.module import DeviceContents, LoadedModule
from luthier.payload.codegen import text_of
from luthier.payload.isolation import in_lasting_child
from luthier.payload.kept import kept_numbers

_NAME = r'(?:"[^"]+"|[\w.$-]+)'
_TOKEN = re.compile(rf"[@%]{_NAME}")
_FUNCTION = re.compile(r"^define [^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_RESULT = re.compile(rf"\s*(%{_NAME}) = (.*)")
_POINTER = re.compile(r"(?:getelementptr|addrspacecast)\b")
_LOAD = re.compile(rf"load ptr(?: addrspace\(1\))?, ptr(?: addrspace\(1\))? (@{_NAME})[, ]")
_WHAT = rf"i(?:32|64) (?:%{_NAME}|-?\d+)"
_ADDITION = re.compile(
    rf"(?:tail |notail )?call (?:noundef )?i(?:32|64) @\"luthier::sAtomicAdd\.[^\"]*\""
    rf"\(.*, {_WHAT}\)(?: #\d+)?(?:, !.*)?$"
    rf"|atomicrmw add .*, {_WHAT} (?:syncscope\([^)]*\) )?monotonic\b"
)
"""Of a number that is no address."""


def only_added(module: LoadedModule, symbol: str, target: TargetId) -> bool:
    """Whether hooks of a module, on a target, do nothing with a variable but add to it, and look at no result of that.

    Args:
        symbol: the variable's.

    Raises:
        ToolError: the module was not built for the target.
    """
    if any(symbol == to for variable in module.variables.values() for _, to, _ in variable.storage.pointers):
        return False  # its address is in another variable
    contents = module.contents_for(target)
    sizes = [one for one in (contents, contents.other) if one is not None]
    return all(_additions(one).get(symbol) for one in sizes)


@functools.lru_cache(maxsize=64)
def _additions(contents: DeviceContents) -> Mapping[str, int]:
    """Each variable, and whether it is only added to."""
    managed = frozenset(variable.symbol for variable in contents.variables if variable.managed)
    symbols = [variable.symbol for variable in contents.variables]
    key = "only added", hashlib.sha256(contents.bitcode).hexdigest(), sorted(managed), symbols

    def look() -> dict[str, int]:
        text = in_lasting_child("the tool's module", text_of, contents.bitcode)
        return {symbol: int(is_only_added(text, symbol, managed=symbol in managed)) for symbol in symbols}

    return kept_numbers(key, look)


def is_only_added(text: str, symbol: str, *, managed: bool) -> bool:
    """The same of a module's IR.

    Args:
        managed: the symbol holds a pointer to the variable.
    """
    wanted = {f"@{symbol}", f'@"{symbol}"'}
    rest = _FUNCTION.sub("", text).splitlines()
    named = [line for line in rest if not line.startswith(("!", ";")) and wanted.intersection(_TOKEN.findall(line))]
    if any(line.partition(" = ")[0] not in wanted for line in named):
        return False  # another variable has its address
    return all(_adds(body[1].splitlines(), wanted, managed=managed) for body in _FUNCTION.finditer(text))


def _adds(lines: list[str], names: set[str], *, managed: bool) -> bool:
    """Whether the lines of a function do nothing with what is known by these names but add to it."""
    pointers, results = set(names), set[str]()
    reached = -1
    while reached != len(pointers):  # blocks need not be in the order in which they run
        reached = len(pointers)
        for line in lines:
            match = _RESULT.match(line)
            result, source = (match[1], match[2]) if match else ("", line.strip())
            tokens = set(_TOKEN.findall(source.partition(", !")[0]))
            if tokens & results:
                return False
            if not tokens & pointers or source.startswith("#dbg_"):
                continue
            load = _LOAD.match(source) if managed else None
            if result and (_POINTER.match(source) or (load is not None and load[1] in names)):
                pointers.add(result)
                continue
            if not _ADDITION.match(source):
                return False
            if result:
                results.add(result)
    return not any(set(_TOKEN.findall(_source(line))) & results for line in lines)


def _source(line: str) -> str:
    match = _RESULT.match(line)
    return match[2] if match else line
