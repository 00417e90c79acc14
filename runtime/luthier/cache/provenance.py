"""Provenance of cached results: the sources that were imported to make them, native code, Python and LLVM.

`provenance_of` names some modules and gives a digest of all that they import, inside functions too, and for type
checkers: found by reading the sources, so that nothing need be listed by hand and nothing can be forgotten. A module
that is imported by a name that the program puts together is found where its full name stands in a string, or where an
import for type checkers says it, as in this package's `__init__` modules. What a package imports counts for who takes
a name from it, not for who only imports a module of it.

Luthier's sources count by what Python parses them to, without docstrings: comments and layout change no result. Other
packages' files count by content, native code by the build id that its linker gave it (by content where it has none).
Parsing 300 modules takes seconds, so what is read out of each is kept, by its content.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import re
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from luthier.cache.folder import cache_folder
from luthier.cache.store import Store

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "cache" / "shipped"
"""Folder of what came with the package: wheels have it (scripts/wheels), sources have none."""
SOURCES = "sources.sqlite"
CODE_GENERATORS = ("llvmlite", "numpy")
"""Other packages whose versions decide what is made, where they are imported."""
_NATIVE = re.compile(r".*\.(so|pyd|dylib)(\.\d+)*")
_MODULE_NAME = re.compile(rf"{PACKAGE.name}(\.\w+)+")
_READER = f"sources 1 {sys.implementation.cache_tag} ".encode() + hashlib.sha256(Path(__file__).read_bytes()).digest()
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BUILD_ID_NOTE = struct.Struct("<III4s")
State = tuple[str, int, int, int, int]


class Provenance(Struct, frozen=True):
    """Digest of everything that a result was made by."""

    digest: str
    """Digest of all of it, hexadecimal."""
    own: str
    """Digest of what belongs to the package itself: without Python, LLVM and other packages."""
    files: Mapping[str, str]
    """The digest of each file: of the program that a source of Luthier is, of a library its build id."""
    states: tuple[State, ...]
    """State of each file, from before it was read."""
    outside: tuple[str, ...] = ()
    """Full names of what is imported of other packages."""

    def unchanged(self) -> bool:
        """Return whether this process can be trusted to have imported the files as they were read.

        None may have been written since the process began: what it makes may else not be what they say, and must not be
        kept.
        """
        now = time.time_ns()
        try:
            # A time in the future means that a clock is wrong.
            return all(_state(it[0]) == it and not _BEGAN <= max(it[3:]) <= now for it in self.states)
        except OSError:
            return False


def provenance_of(*modules: str, also: str = "", package: Path | None = None) -> Provenance:
    """Return the provenance of what these modules of Luthier make.

    Args:
        modules: names, e.g. ``luthier.run.patching``; nothing is imported.
        also: what else decides what is made.
        package: folder of another package that they are of.
    """
    return _provenance_of(package or PACKAGE, modules, also)  # PACKAGE is another one in tests


@functools.cache
def _provenance_of(package: Path, modules: tuple[str, ...], also: str) -> Provenance:
    return _tree_of(package).trace(modules, also, _known_sources())


@functools.lru_cache(maxsize=64)
def package_provenance(module: str) -> Provenance | None:
    """Return the provenance of what a module of another package makes.

    It covers all files of the topmost package, and the versions of Python's standard library and of Luthier. None if
    the package imports others, of which nothing is known, or is no plain file.

    Args:
        module: its name; nothing is imported.
    """
    top = module.partition(".")[0]
    paths = list(_files_of_package(top))
    if not paths:
        return None
    files = [_File.of_native(path) if _NATIVE.fullmatch(path) else _File.read(path) for path in sorted(paths)]
    sources = [file for file in files if file.state[0].endswith(".py")]
    read = _read_sources(sources, _known_sources()).values()
    outside = {name.partition(".")[0] for source in read for name in source.imports}
    if outside - sys.stdlib_module_names - {top, PACKAGE.name, *CODE_GENERATORS}:
        return None
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    digests = {os.path.relpath(file.state[0], root): file.digest for file in files}
    digest = _digest_of(sorted(digests.items()))
    return Provenance(digest, digest, digests, tuple(file.state for file in files))


def _digest_of(*said: object) -> str:
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


# Files ---------------------------------------------------------------------------------------------------------------


class _File(Struct, frozen=True):
    state: State
    digest: str
    text: bytes = b""

    @staticmethod
    def read(path: str) -> _File:
        state = _state(path)
        with open(path, "rb") as file:
            text = file.read()
        return _File(state, hashlib.sha256(text).hexdigest(), text)

    @staticmethod
    def of_native(path: str) -> _File:
        """Return a native file with its build id as digest, since its contents would take long to read."""
        state = _state(path)
        return _File(state, _build_id(path) or _File.read(path).digest)


def _state(path: str) -> State:
    """Return a file's path, identity and size, and when it was written or put there."""
    status = os.stat(path)
    return path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _build_id(path: str) -> str:
    """Return the build id of a little-endian 64-bit ELF file; empty if it has none."""
    with suppress(OSError, ValueError, struct.error), open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\2\1":
            return ""
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(table)
        headers = file.read(size * count)
        for number in range(count):
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", headers, number * size)
            if kind == 4:  # PT_NOTE
                file.seek(offset)
                if found := _build_id_in(file.read(min(length, 1 << 16))):
                    return found
    return ""


def _build_id_in(notes: bytes) -> str:
    at = 0
    while at + _BUILD_ID_NOTE.size <= len(notes):
        name_size, size, kind, name = _BUILD_ID_NOTE.unpack_from(notes, at)
        start = at + 12 + -(-name_size // 4) * 4
        if (kind, name_size, name) == (3, 4, b"GNU\0"):  # NT_GNU_BUILD_ID
            return notes[start : start + size].hex()
        at = start + -(-size // 4) * 4
    return ""


class Tree:
    """A package in a folder: which files its modules are in. Each file is read once.

    Args:
        package: its folder, of the package's name.
    """

    def __init__(self, package: Path) -> None:
        self._package = package
        self._folders: dict[str, frozenset[str]] = {}
        self._files: dict[str, _File] = {}
        self._found: dict[str, tuple[tuple[str, bool], ...]] = {}

    def trace(self, modules: Sequence[str], also: str = "", known: Store | None = None) -> Provenance:
        """Return the provenance of modules like `provenance_of`.

        Args:
            known: where what is read out of sources is kept.
        """
        names, done, imported = set(modules), set[str](), set[str]()
        paths, taken = {str(self._package / "__init__.py")}, set[str]()
        sources: dict[str, _Source] = {}
        while names:  # one level of imports after the other, to ask for all of a level at once
            done |= names
            found = [place for name in names for place in self._sources_of(name)]
            paths.update(path for path, _ in found)
            fresh = {path for path, is_taken in found if is_taken} - taken
            taken |= fresh
            sources |= _read_sources(map(self._read, paths - sources.keys()), known)
            tops = {name: name.partition(".")[0] for path in fresh for name in sources[path].imports}
            imported |= tops.keys()
            names = {name for name, top in tops.items() if top.lstrip("?") == self._package.name} - done
        folders = {os.path.dirname(path) for path in paths}
        own_libraries = [path for folder in folders for path in self._native_in(folder)]
        outside = {name: top for name in imported if (top := name.partition(".")[0]).lstrip("?") != self._package.name}
        used = [name for name in CODE_GENERATORS if name in outside.values()]
        native = [*own_libraries, *(path for name in used for path in _libraries_of(name))]
        libraries = list(map(_File.of_native, sorted(native)))
        digests = {self._shown(path): sources[path].program for path in sorted(paths)}
        digests |= {self._shown(file.state[0]): file.digest for file in libraries}
        files = [*map(self._read, sorted(paths)), *libraries]
        said = [also, sys.implementation.cache_tag, sys.maxsize, [(name, _version(name)) for name in used]]
        own = {self._shown(path): digests[self._shown(path)] for path in (*paths, *own_libraries)}
        return Provenance(
            _digest_of(sorted(digests.items()), said),
            _digest_of(sorted(own.items())),
            digests,
            tuple(file.state for file in files),
            tuple(sorted(outside)),
        )

    def _read(self, path: str) -> _File:
        if path not in self._files:
            self._files[path] = _File.read(path)
        return self._files[path]

    def _sources_of(self, name: str) -> tuple[tuple[str, bool], ...]:
        if name not in self._found:
            self._found[name] = tuple(self._look_up(name))
        return self._found[name]

    def _look_up(self, name: str) -> Iterator[tuple[str, bool]]:
        """Yield the file of a module, and those of the packages that it is in, which Python runs before it; and whether
        something is taken from it.

        From a package it is where the name is its own, or one in it that is no module.
        """
        folder, package = str(self._package), ""
        for number, part in enumerate(name.split(".")[1:]):
            entries = self._entries(folder)
            if part in entries:
                if package:
                    yield package, False
                folder = f"{folder}/{part}"
                package = f"{folder}/__init__.py" if "__init__.py" in self._entries(folder) else ""
                continue
            is_module = f"{part}.py" in entries
            if package:
                yield package, not is_module
            if is_module:
                yield f"{folder}/{part}.py", True
            elif not number and _is_name(name, part, entries):
                yield f"{folder}/__init__.py", True
            return  # what follows is a name in the module
        if package:
            yield package, True

    def _entries(self, folder: str) -> frozenset[str]:
        if folder not in self._folders:
            with suppress(OSError):
                self._folders[folder] = frozenset(os.listdir(folder))
        return self._folders.setdefault(folder, frozenset())

    def _native_in(self, folder: str) -> Iterator[str]:
        return (f"{folder}/{name}" for name in self._entries(folder) if _NATIVE.fullmatch(name))

    def _shown(self, path: str) -> str:
        """Return a file's name independent of where the package is: relative to it."""
        return path.removeprefix(f"{self._package}/") if path.startswith(f"{self._package}/") else Path(path).name


def _is_name(name: str, part: str, entries: Iterable[str]) -> bool:
    """Return whether a name taken from the outermost package is no module, not even a native one, and no dunder."""
    is_certain = not name.startswith("?") and not part.startswith("__")
    return is_certain and not any(entry.startswith(f"{part}.") for entry in entries)


@functools.cache
def _tree_of(package: Path) -> Tree:
    return Tree(package)


def _files_of_package(top: str) -> Iterator[str]:
    """Yield all files of a package or module that is not imported.

    There are none if it is neither in a folder nor a source file.
    """
    spec = None
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(top)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.has_location and spec.origin:
            yield spec.origin
        return
    for root in spec.submodule_search_locations:
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from (os.path.join(folder, name) for name in files if not name.endswith(".pyc"))


@functools.cache
def _libraries_of(top: str) -> tuple[str, ...]:
    """Return the native libraries of a package: of llvmlite, which has LLVM in one.

    Those of NumPy are covered by its version.
    """
    if top != "llvmlite":
        return ()
    return tuple(path for path in _files_of_package(top) if _NATIVE.fullmatch(path))


def _version(name: str) -> str:
    return str(importlib.import_module(name).__version__)


# Sources -------------------------------------------------------------------------------------------------------------


class _Source(Struct, frozen=True):
    """The names, imports and data that a source file mentions."""

    program: str
    """Digest of the program: equal for sources that differ in comments, docstrings and layout alone."""
    imports: tuple[str, ...]
    """The full names of all that it imports; those that strings may name have a question mark before them.

    Relative imports are left out: they stay in a package.
    """


def _known_sources() -> Store | None:
    folder = cache_folder("provenance")
    return None if folder is None else _sources_in(folder)


@functools.lru_cache(maxsize=8)
def _sources_in(folder: Path) -> Store:
    return Store(folder / SOURCES, shipped=SHIPPED / SOURCES)


os.register_at_fork(after_in_child=_sources_in.cache_clear)  # SQLite's connections do not survive a fork


def _read_sources(files: Iterable[_File], known: Store | None) -> dict[str, _Source]:
    """Return by path what some sources say; what is not kept of them is read and kept."""
    keys = {file: _READER + file.digest.encode() for file in files}
    kept = {} if known is None else known.get(keys.values())
    sources = {key: _read_source(file) for file, key in keys.items() if key not in kept}
    if known is not None:
        known.put({key: "\n".join([source.program, *source.imports]).encode() for key, source in sources.items()})
    for key, text in kept.items():
        program, *imports = text.decode().split("\n")
        sources[key] = _Source(program, tuple(imports))
    return {file.state[0]: sources[key] for file, key in keys.items()}


def _read_source(file: _File) -> _Source:
    try:
        tree = ast.parse(file.text)
    except (SyntaxError, ValueError):
        return _Source(file.digest, ())  # it cannot be imported
    program, imports = list[str](), set[str]()
    _read_node(tree, program, imports)
    return _Source(hashlib.sha256("\0".join(program).encode()).hexdigest(), tuple(sorted(imports)))


def _read_node(node: ast.AST, program: list[str], imports: set[str]) -> None:
    """Add what a node and all below it are, without docstrings, and what they import.

    In one pass, since `ast.walk` and `ast.dump` take twice the time.
    """
    if isinstance(node, ast.Import):
        imports.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        imports.update(f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE_NAME.fullmatch(node.value):
        imports.add(f"?{node.value}")
    elif isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        del node.body[0]
    program.append(node.__class__.__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        parts = value if isinstance(value, list) else (value,)
        program.append(f"{len(parts)}" if parts is value else "")
        for part in parts:
            if isinstance(part, ast.AST):
                _read_node(part, program, imports)
            else:
                program.append(repr(part))


def _process_began() -> int:
    """Return when this process began, in nanoseconds since 1970."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time_ns() - int(age * 1e9)
    return time.time_ns()


_BEGAN = _process_began()
