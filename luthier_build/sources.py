"""Facts about hooks and variables that only the sources have.

They are parameters' names and C types, comments, and places, read by libclang.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.errors import BuildError

if TYPE_CHECKING:
    from clang.cindex import Cursor, Type

    from luthier_build.toolchain import Toolchain

OLDEST_LIBRARY = 18
"""The oldest libclang that the Python bindings' functions are all in."""


_KINDS = {
    "bool": ("BOOL",),
    "int": ("CHAR_S", "SCHAR", "SHORT", "INT", "LONG", "LONGLONG", "WCHAR"),
    "uint": ("CHAR_U", "UCHAR", "USHORT", "UINT", "ULONG", "ULONGLONG", "CHAR16", "CHAR32"),
    "float": ("HALF", "FLOAT", "DOUBLE"),
    "pointer": ("POINTER",),
    "vector": ("VECTOR", "EXTVECTOR"),
}
"""Kind of parameter -> names of clang's type kinds."""

_STAR = re.compile(r"^\s*\* ?")
_SLASHES = re.compile(r"^\s*//[/!]<? ?")


@dataclass(frozen=True)
class SourceParameter:
    """A parameter of a hook as declared."""

    name: str
    type: str
    """The type as written, e.g. ``uint32_t``."""
    kind: str
    """``bool``, ``int``, ``uint``, ``float``, ``pointer``, ``vector``; anything else cannot be passed to a hook."""
    size: int
    """Bytes."""
    location: str
    """``file:line:column``"""


@dataclass(frozen=True)
class SourceDeclaration:
    """A function or a variable as declared."""

    name: str
    """Qualified name, e.g. ``counters::total``."""
    type: str
    parameters: tuple[SourceParameter, ...]
    documentation: str
    location: str


def available() -> bool:
    """Return whether libclang's Python bindings are installed."""
    return importlib.util.find_spec("clang") is not None and importlib.util.find_spec("clang.cindex") is not None


@functools.cache
def _bindings(library: str | None) -> Any:
    from clang import cindex

    if library is not None and not cindex.Config.loaded:
        cindex.Config.set_library_file(library)
    return cindex


def _library_of(clang: Path, major: int) -> str | None:
    """Return the libclang that belongs to this compiler, else None: then the one of the bindings is used."""
    if major < OLDEST_LIBRARY:
        return None
    folder = clang.resolve().parent.parent / "lib"
    found = sorted(folder.glob(f"libclang-{major}.so*")) + sorted(folder.glob("libclang.so*"))
    return str(found[0]) if found else None


def read_declarations(
    toolchain: Toolchain, arguments: Sequence[str], source: Path, project: Path
) -> dict[str, SourceDeclaration]:
    """Return the declaration of every function and variable outside system headers, by mangled name.

    Args:
        toolchain: its headers are used, and its libclang if it has one.
        arguments: the compiler's arguments without plugin, input and output; paths in them relative to `project`.

    Raises:
        BuildError: libclang cannot be loaded or does not understand the source at all.
    """
    cindex = _bindings(_library_of(toolchain.clang, toolchain.llvm_major))
    pairs = zip(["", *arguments], arguments, strict=False)
    absolute = [_from_project(part, previous, project) for previous, part in pairs]
    try:
        unit = cindex.Index.create().parse(
            str(source), [*absolute, "-nogpulib", "-w", f"-resource-dir={toolchain.resource_dir}"]
        )
    except (cindex.LibclangError, cindex.TranslationUnitLoadError) as problem:
        raise BuildError(f"libclang cannot read {source}: {problem}", object=str(source)) from problem
    found: dict[str, SourceDeclaration] = {}
    for cursor, comment in _walk(unit.cursor, "", cindex):
        declaration = _declaration(cursor, comment, project, cindex)
        known = found.get(cursor.mangled_name, declaration)
        documentation = declaration.documentation or known.documentation
        best = declaration if cursor.is_definition() else known
        found[cursor.mangled_name] = replace(best, documentation=documentation)
    return found


def _from_project(argument: str, previous: str, project: Path) -> str:
    """Return `argument` with a relative path in it made absolute: libclang has no working folder of its own."""
    if previous == "-include":  # else it is found as other headers are
        return str(project / argument) if (project / argument).is_file() else argument
    if argument.startswith("-I") and len(argument) > 2:
        return f"-I{project / argument[2:]}"
    return argument


def _walk(parent: Cursor, outer_comment: str, cindex: Any) -> Iterator[tuple[Cursor, str]]:
    """Yield (cursor, comment) of functions and variables, through namespaces, classes and ``extern "C"``."""
    kinds = cindex.CursorKind
    for cursor in parent.get_children():
        if cursor.location.is_in_system_header:
            continue
        kind = _known_kind(cursor)
        if kind in (kinds.FUNCTION_DECL, kinds.CXX_METHOD, kinds.VAR_DECL):
            yield cursor, cursor.raw_comment or outer_comment
        elif kind in (kinds.LINKAGE_SPEC, kinds.UNEXPOSED_DECL):
            yield from _walk(cursor, cursor.raw_comment or "", cindex)
        elif kind in (kinds.NAMESPACE, kinds.STRUCT_DECL, kinds.CLASS_DECL):
            yield from _walk(cursor, "", cindex)


def _qualified(cursor: Cursor, cindex: Any) -> str:
    """Return the name with those of the namespaces and classes it is in, wherever it is defined."""
    kinds = cindex.CursorKind
    name, parent = str(cursor.spelling), cursor.semantic_parent
    while parent is not None and _known_kind(parent) != kinds.TRANSLATION_UNIT:
        if _known_kind(parent) in (kinds.NAMESPACE, kinds.STRUCT_DECL, kinds.CLASS_DECL) and parent.spelling:
            name = f"{parent.spelling}::{name}"
        parent = parent.semantic_parent
    return name


def _known_kind(item: Cursor | Type) -> Any:
    """Return the kind, or None for one that came to libclang after the bindings were made."""
    try:
        return item.kind
    except ValueError:
        return None


def _place(cursor: Cursor, project: Path) -> str:
    location = cursor.location
    path = Path(location.file.name) if location.file else Path("?")
    if path.is_relative_to(project):
        path = path.relative_to(project)
    return f"{path}:{location.line}:{location.column}"


def _declaration(cursor: Cursor, comment: str, project: Path, cindex: Any) -> SourceDeclaration:
    kinds = cindex.CursorKind
    functions = (kinds.FUNCTION_DECL, kinds.CXX_METHOD)
    parameters = tuple(
        SourceParameter(
            argument.spelling or f"arg{position}",
            argument.type.spelling,
            _kind(argument.type, cindex),
            argument.type.get_size(),
            _place(argument, project),
        )
        for position, argument in enumerate(cursor.get_arguments() if cursor.kind in functions else ())
    )
    spelled = cursor.result_type.spelling if cursor.kind in functions else cursor.type.spelling
    return SourceDeclaration(
        _qualified(cursor, cindex), spelled, parameters, clean_comment(comment), _place(cursor, project)
    )


def _kind(declared: Type, cindex: Any) -> str:
    kinds = cindex.TypeKind
    canonical = declared.get_canonical()
    kind = _known_kind(canonical)
    if kind == kinds.ENUM:
        canonical = canonical.get_declaration().enum_type.get_canonical()
        kind = _known_kind(canonical)
    for name, members in _KINDS.items():
        if kind is not None and kind in (getattr(kinds, member) for member in members):
            return name
    if canonical.spelling.removeprefix("const ") in ("_Float16", "__bf16"):
        return "float"
    return canonical.spelling if kind is None else str(kind.name).lower()


def clean_comment(raw: str) -> str:
    """Return the text of a documentation comment without its stars and slashes; empty for an ordinary comment.

    Only comments that documentation tools read are taken: ``///``, ``//!``, ``/** */`` and ``/*! */``.
    """
    raw = raw.strip()
    if raw.startswith(("/**", "/*!")):
        first, *rest = raw[3:].removesuffix("*/").splitlines() or [""]
        return "\n".join(
            [first, *textwrap.dedent("\n".join(_STAR.sub("", line) for line in rest)).splitlines()]
        ).strip()
    if raw.startswith(("///", "//!")):
        return "\n".join(_SLASHES.sub("", line) for line in raw.splitlines()).strip()
    return ""
