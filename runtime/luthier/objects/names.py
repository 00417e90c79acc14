"""Names of kernels: matching of names that users give, and names to show."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from luthier import _mc
from luthier.errors import ObjectError
from luthier.support.suggestions import did_you_mean
from luthier.support.wording import enumerated

if TYPE_CHECKING:
    from luthier.support.table import Cell, Table

_AFTER_PARAMETERS = re.compile(r"(?: const)?(?: \[clone [^]]*\])?$")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
"""The end of a demangled name of Rust in its older mangling."""
_CYTHON = re.compile(r"__pyx_(?:fuse_\d+__pyx_)?(pw|pf|f)_(\d\w*?)(?:__pyx_wrap_\d+)?(?:\.[\w.]+)?$")
"""A function that Cython compiled: of Python (with a number before its name) or of C, in the scopes of a module."""
_FORTRAN = re.compile(r"(?<![A-Za-z0-9])_(?:_([a-z]\w*)_MOD_([a-z]\w*)|QM([a-z][a-z0-9_]*)P([a-z][a-z0-9_]*))")
"""A procedure of a module, as gfortran and flang mangle it."""
_SYMBOL = re.compile(r"\b(?:_[ZR]|__[a-z]\w*_MOD_|\w*_QM[a-z])\w+")
"""A mangled symbol somewhere in a text."""


@lru_cache(maxsize=1 << 12)
def spellings(name: str) -> tuple[str, ...]:
    """Return the spellings of a kernel's name.

    They are its symbol and, if it is mangled, the demangled name with and without parameters
    (``_ZN4math5scaleIfEEvPT_i``, ``void math::scale<float>(float*, int)``, ``math::scale<float>``); for a procedure of
    a Fortran module, the symbol with both names (``math::scale._omp_fn.0``).
    """
    whole = _mc.demangle(name)
    if whole == name:
        function = _of_cython(name) or _FORTRAN.sub(
            lambda match: f"{match[1] or match[3]}::{match[2] or match[4]}", name
        )
        return (name,) if function == name else (name, function)
    short = _RUST_HASH.sub("", whole) if _RUST_HASH.search(whole) else _without_parameters(whole)
    return (name, whole, short) if short else (name, whole)


def _of_cython(symbol: str) -> str:
    """Return the name of a function that Cython compiled, ``package.module.function``; empty for others."""
    match = _CYTHON.match(symbol)
    kind, rest = match.groups() if match else ("", "")
    names: list[str] = []
    while number := re.match(r"[0-9]{1,6}(?![0-9])", rest):
        end = number.end() + int(number[0])
        is_scope = rest[end : end + 1] == "_" and (kind == "f" or rest[end + 1 : end + 2].isdigit())
        if not is_scope:
            break
        names.append(rest[number.end() : end])
        rest = rest[end + 1 :]
    last = rest if kind == "f" else rest.lstrip("0123456789")
    return ".".join([*names, last]) if names and last else ""


def _without_parameters(whole: str) -> str:
    """Return a demangled function without its return type and parameters; empty if these are not certain.

    Parentheses are also in names: ``(anonymous namespace)``, and functions around a lambda.
    """
    text = _AFTER_PARAMETERS.sub("", whole)
    depth = begin = end = 0
    for at, character in enumerate(text):
        if not depth and character == " ":
            begin = at + 1
        elif not depth and character == "(":
            end = at
        depth += (character in "(<") - (character in ")>")
        if depth < 0:  # of an operator
            return ""
    is_certain = not depth and text.endswith(")") and begin < end and not re.search(r"\boperator\b ", text)
    return text[begin:end] if is_certain and not text.startswith("(*", begin) else ""


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern matches the kernel `name`.

    It matches if it is one of the `spellings`, the last of them without its template arguments (``math::scale``), or
    a glob (``*``, ``?``, ``[…]``) that matches one; case matters. A pattern that ends with ``)`` is not a glob: ``*``
    is a pointer there.
    """
    known = spellings(name)
    is_glob = not pattern.endswith(")")
    return pattern in (*known, _template(known[-1])) or (
        is_glob and any(fnmatch.fnmatchcase(one, pattern) for one in known)
    )


@lru_cache(maxsize=1 << 12)
def _template(name: str) -> str:
    """Return a name without the template arguments at its end."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ">") - (name[at] == "<")
        if not depth:
            return name[:at] if name[at] == "<" else name
    return name


def is_selected(name: str, patterns: Iterable[str]) -> bool:
    """Return whether patterns select a kernel.

    Args:
        name: its symbol.
        patterns: as for `matches`; ``!`` at the beginning excludes. Without including patterns, all are included.
    """
    wanted = list(patterns)
    taken = [pattern for pattern in wanted if not pattern.startswith("!")]
    left_out = [pattern[1:] for pattern in wanted if pattern.startswith("!")]
    if any(matches(name, pattern) for pattern in left_out):
        return False
    return not taken or any(matches(name, pattern) for pattern in taken)


def select(names: Sequence[str], patterns: Sequence[str], *, file: str) -> list[str]:
    """Return those of `names` that patterns select, in order.

    Args:
        names: symbols of kernels.
        patterns: as for `is_selected`.
        file: name of their container in errors.

    Raises:
        ObjectError: an including pattern matches no name, or all are excluded.
    """
    for pattern in patterns:
        if not pattern.startswith("!") and not any(matches(name, pattern) for name in names):
            hint = did_you_mean(pattern, {name for symbol in names for name in spellings(symbol)})
            raise ObjectError(f"no kernel matches {pattern!r}; choose from {enumerated(names)}{hint}", object=file)
    chosen = [name for name in names if is_selected(name, patterns)]
    if patterns and not chosen:
        raise ObjectError(f"all kernels are excluded: {enumerated(names)}", object=file)
    return chosen


def as_in_source(tables: Iterable[Table]) -> list[Table]:
    """Return tables with mangled symbols in titles and cells replaced by names as in the source.

    Names are without parameters (``math::scale<float>``), unless two symbols (overloads) would share one.
    """
    tables = list(tables)
    texts = [text for table in tables for text in (table.title, *_texts(table))]
    symbols = {symbol for text in texts for symbol in _SYMBOL.findall(text)}
    times = Counter(spellings(symbol)[-1] for symbol in symbols)

    def shown(text: Cell) -> Cell:
        return _SYMBOL.sub(lambda match: name(match[0]), text) if isinstance(text, str) else text

    def name(symbol: str) -> str:
        _, *known = spellings(symbol)
        return symbol if not known else known[-1] if times[known[-1]] == 1 else known[0]

    return [
        replace(
            table,
            title=str(shown(table.title)),
            rows=[[shown(cell) for cell in row] for row in table.rows],
        )
        for table in tables
    ]


def _texts(table: Table) -> Iterable[str]:
    return (cell for row in table.rows for cell in row if isinstance(cell, str))
