"""Read with libclang what only the sources of hooks and variables contain: names and C types of parameters, comments
and locations."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.errors import BuildError

if TYPE_CHECKING:
    from clang.cindex import Cursor, Diagnostic, Type

    from luthier_build.toolchain import Toolchain

OLDEST_LIBRARY = 18
"""The oldest libclang that has all functions of the Python bindings."""


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
    try:
        return importlib.util.find_spec("clang.cindex") is not None
    except ImportError:  # no `clang`, or an unrelated module of that name
        return False


@functools.cache
def _bindings(library: str | None) -> Any:
    from clang import cindex

    if library is not None and not cindex.Config.loaded:
        cindex.Config.set_library_file(library)
    return cindex


def _library_of(clang: Path, major: int) -> str | None:
    """Return the libclang of this compiler; None if there is none, then the bindings' own is used."""
    if major < OLDEST_LIBRARY:
        return None
    folder = clang.resolve().parent.parent / "lib"
    libraries = sorted(folder.glob(f"libclang-{major}.so*")) + sorted(folder.glob("libclang.so*"))
    return str(libraries[0]) if libraries else None


def read_declarations(
    toolchain: Toolchain,
    arguments: Sequence[str],
    source: Path,
    project: Path,
    report: Callable[[str], object] = print,
) -> dict[str, SourceDeclaration]:
    """Return the declarations of functions and variables outside system headers, by mangled name.

    If libclang reports an error, report it and return no declarations: types may differ from the compiled ones.

    Args:
        toolchain: supplies the headers and, if it has one, libclang.
        arguments: the compiler's arguments without plugin, input and output; paths in them are relative to `project`.

    Raises:
        BuildError: libclang cannot be loaded or cannot read the source.
    """
    cindex = _bindings(_library_of(toolchain.clang, toolchain.llvm_major))
    own = ["-nogpulib", "-w", f"-resource-dir={toolchain.resource_dir}", f"-working-directory={project}"]
    try:
        unit = cindex.Index.create().parse(os.fsencode(source), list(map(os.fsencode, [*arguments, *own])))
    except (cindex.LibclangError, cindex.TranslationUnitLoadError) as problem:
        raise BuildError(f"libclang cannot read {source}: {problem}", object=str(source)) from problem
    for diagnostic in unit.diagnostics:
        # A libclang that is not the compiler's may report errors in the compiler's headers, which do not matter.
        passed = diagnostic.severity < diagnostic.Fatal and diagnostic.location.is_in_system_header
        if diagnostic.severity >= diagnostic.Error and not passed:
            report(
                f"{_place(diagnostic, project)}: hooks are described by LLVM types, because libclang reports an error: "
                f"{_text(diagnostic, 'spelling')}"
            )
            return {}
    declarations: dict[str, SourceDeclaration] = {}
    for cursor, comment in _walk(unit.cursor, "", cindex):
        declaration = _declaration(cursor, comment, project, cindex)
        symbol = _text(cursor, "mangled_name")
        known = declarations.get(symbol, declaration)
        documentation = declaration.documentation or known.documentation
        best = declaration if cursor.is_definition() else known
        declarations[symbol] = replace(best, documentation=documentation)
    return declarations


def _text(item: Any, attribute: str, errors: str = "replace") -> str:
    """Return a text attribute of libclang; decode text that is not UTF-8, which the bindings reject, by `errors`."""
    try:
        return getattr(item, attribute) or ""
    except UnicodeDecodeError as problem:
        return problem.object.decode(errors=errors)


def _walk(parent: Cursor, outer_comment: str, cindex: Any) -> Iterator[tuple[Cursor, str]]:
    """Yield (cursor, comment) of functions and variables, through namespaces, classes and ``extern "C"``."""
    kinds = cindex.CursorKind
    for cursor in parent.get_children():
        if cursor.location.is_in_system_header:
            continue
        kind = _known_kind(cursor)
        if kind in (kinds.FUNCTION_DECL, kinds.CXX_METHOD, kinds.VAR_DECL):
            yield cursor, _text(cursor, "raw_comment") or outer_comment
        elif kind in (kinds.LINKAGE_SPEC, kinds.UNEXPOSED_DECL):
            yield from _walk(cursor, _text(cursor, "raw_comment"), cindex)
        elif kind in (kinds.NAMESPACE, kinds.STRUCT_DECL, kinds.CLASS_DECL):
            yield from _walk(cursor, "", cindex)


def _qualified(cursor: Cursor, cindex: Any) -> str:
    """Return the name qualified with its namespaces and classes."""
    kinds = cindex.CursorKind
    name, parent = _text(cursor, "spelling"), cursor.semantic_parent
    while parent is not None and _known_kind(parent) != kinds.TRANSLATION_UNIT:
        outer = _text(parent, "spelling")
        if _known_kind(parent) in (kinds.NAMESPACE, kinds.STRUCT_DECL, kinds.CLASS_DECL) and outer:
            name = f"{outer}::{name}"
        parent = parent.semantic_parent
    return name


def _known_kind(item: Cursor | Type) -> Any:
    """Return the kind, or None for a kind that is newer than the bindings."""
    try:
        return item.kind
    except ValueError:
        return None


def _place(item: Cursor | Diagnostic, project: Path) -> str:
    location = item.location
    path = Path(_text(location.file, "name", "surrogateescape") if location.file else "?")
    if path.is_relative_to(project):
        path = path.relative_to(project)
    return f"{os.fsencode(path).decode(errors='replace')}:{location.line}:{location.column}"


def _declaration(cursor: Cursor, comment: str, project: Path, cindex: Any) -> SourceDeclaration:
    kinds = cindex.CursorKind
    functions = (kinds.FUNCTION_DECL, kinds.CXX_METHOD)
    parameters = tuple(
        SourceParameter(
            _text(argument, "spelling") or f"arg{position}",
            _text(argument.type, "spelling"),
            _kind(argument.type, cindex),
            argument.type.get_size(),
            _place(argument, project),
        )
        for position, argument in enumerate(cursor.get_arguments() if cursor.kind in functions else ())
    )
    spelled = _text(cursor.result_type if cursor.kind in functions else cursor.type, "spelling")
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
    spelled = _text(canonical, "spelling")
    if spelled.removeprefix("const ") in ("_Float16", "__bf16"):
        return "float"
    return spelled if kind is None else str(kind.name).lower()


def clean_comment(raw: str) -> str:
    """Return the text of a documentation comment without stars and slashes; empty for an ordinary comment.

    Documentation comments begin with ``///``, ``//!``, ``/**`` or ``/*!``.
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
