"""Provenance of cached results: the sources, native code, Python and LLVM that made them.

Each cache declares the modules and packages that make its results, with everything that they import
(tests/cache/test_provenance.py compares the lists with the imports). So edits elsewhere keep its results valid.

Luthier's sources count by their syntax trees without docstrings: comments and layout do not change results. Files of
other packages count by content, native code by its linker's build id (or by content if it has none). Parsing 300
modules takes seconds, so the digest of each tree is cached by the content of the file.
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from luthier.cache.folder import cache_folder
from luthier.cache.store import Store
from luthier.errors import CacheError

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "cache" / "shipped"
"""Folder of results that came with the package: wheels have it (scripts/wheels), source trees do not."""
SOURCES = "sources.sqlite"
CODE_GENERATORS = ("llvmlite", "numpy")
"""Other packages whose versions affect results."""
_LOW = (
    *("luthier._mc", "luthier.arch", "luthier.cache", "luthier.errors", "luthier.extensions", "luthier.isa"),
    *("luthier.support", "luthier.terminal", "luthier.wire.structures"),
)
_FINDINGS = ("luthier.findings", "luthier.wire.floats", "luthier.wire.messages")
EMULATOR = (
    *_LOW,
    *(f"luthier.emulator.{name}" for name in ("constants", "ir", "layout", "native", "operations", "questions")),
    *(f"luthier.emulator.binding.{name}" for name in ("bind", "plans", "records", "shapes")),
    "luthier.wire.floats",
)
"""Makers of operations of the emulated device, and of the facts that binding derives from instructions."""
OBJECTS = (*_LOW, "luthier.channels", "luthier.module", "luthier.objects", "luthier.wire.channels")
"""Makers of facts about code objects, and of manifests of tool modules."""
PAYLOADS = (*OBJECTS, *_FINDINGS, "luthier.hazards", "luthier.lifting", "luthier.payload")
"""Makers of hooks, compiled for their arguments."""
PATCHES = (*PAYLOADS, "luthier.emulator.layout", "luthier.emulator.running.start", "luthier.patch", "luthier.tool")
"""Makers of patched kernels."""
_NATIVE = re.compile(r".*\.(so|pyd|dylib)(\.\d+)*")
_READER = f"sources 2 {sys.implementation.cache_tag} ".encode() + hashlib.sha256(Path(__file__).read_bytes()).digest()
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BUILD_ID_NOTE = struct.Struct("<III4s")
State = tuple[str, int, int, int, int]


class Provenance(Struct, frozen=True):
    """Digests of everything that makes a result."""

    digest: str
    """Hexadecimal digest of everything."""
    own: str
    """Digest of the package's own files: without Python, LLVM and other packages."""
    files: Mapping[str, str]
    """Digest of each file: of the syntax tree for Luthier's sources, the build id for libraries."""
    states: tuple[State, ...]
    """State of each file before it was read."""

    def unchanged(self) -> bool:
        """Return whether this process has certainly imported the files that were read.

        None may have been written since the process began: its results might otherwise not match their digests, and
        must not be cached.
        """
        now = time.time_ns()
        try:
            # A time in the future means a wrong clock.
            return all(_state(it[0]) == it and not _BEGAN <= max(it[3:]) <= now for it in self.states)
        except OSError:
            return False


def provenance_of(*makers: str, also: str = "", root: Path = PACKAGE.parent) -> Provenance:
    """Return the provenance of results of these modules.

    Args:
        makers: names of modules, or of packages for all modules in them; nothing is imported.
        also: text with everything else that affects the results.
        root: the folder that contains their package.

    Raises:
        CacheError: a module does not exist.
    """
    return _provenance_of(makers, also, root, cache_folder("provenance"))


@functools.cache
def _provenance_of(makers: tuple[str, ...], also: str, root: Path, folder: Path | None) -> Provenance:
    paths = sorted({path for name in makers for path in _files_of(root, name)})
    sources = [_source(path) for path in paths if path.endswith(".py")]
    own_libraries = [_SourceFile.of_native(path) for path in paths if not path.endswith(".py")]
    llvm = [_SourceFile.of_native(path) for path in sorted(_libraries_of("llvmlite"))]
    programs = _programs_of(sources, None if folder is None else _sources_in(folder))
    own = {os.path.relpath(path, root): programs[path] for path in programs}
    own |= {os.path.relpath(file.state[0], root): file.digest for file in own_libraries}
    files = {**own, **{Path(file.state[0]).name: file.digest for file in llvm}}
    context = [also, sys.implementation.cache_tag, sys.maxsize, [(name, _version(name)) for name in CODE_GENERATORS]]
    return Provenance(
        _digest_of(sorted(files.items()), context),
        _digest_of(sorted(own.items())),
        files,
        tuple(file.state for file in (*sources, *own_libraries, *llvm)),
    )


@functools.cache
def _files_of(root: Path, name: str) -> tuple[str, ...]:
    """Return the files of a module, or of all modules in a package, and of its parent packages, which Python runs
    first.

    Raises:
        CacheError: the module does not exist.
    """
    place = root.joinpath(*name.split("."))
    paths = [f"{folder}/{name}" for folder, _, names in os.walk(place) for name in names if name.endswith(".py")]
    if not paths:
        beside = map(str, place.parent.glob(f"{place.name}.*"))
        paths = [path for path in beside if path.endswith(".py") or _NATIVE.fullmatch(path)]
    if not paths:
        raise CacheError(f"no module {name} is in {root}: give the full names of the modules that make results")
    packages = (folder / "__init__.py" for folder in place.parents if folder != root and folder.is_relative_to(root))
    return *paths, *(str(path) for path in packages if path.exists())


@functools.lru_cache(maxsize=64)
def package_provenance(module: str) -> Provenance | None:
    """Return the provenance of results of a module of another package.

    It covers all files of the topmost package, and the versions of Python's standard library and of Luthier. None if
    the package imports other packages, which are not tracked, or is not made of plain files.

    Args:
        module: name of the module; nothing is imported.
    """
    top = module.partition(".")[0]
    paths = list(_files_of_package(top))
    if not paths:
        return None
    files = [
        _SourceFile.of_native(path) if _NATIVE.fullmatch(path) else _SourceFile.read(path) for path in sorted(paths)
    ]
    outside = {name for file in files if file.state[0].endswith(".py") for name in _imports_of(file.text)}
    if outside - sys.stdlib_module_names - {top, PACKAGE.name, *CODE_GENERATORS}:
        return None
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    digests = {os.path.relpath(file.state[0], root): file.digest for file in files}
    digest = _digest_of(sorted(digests.items()))
    return Provenance(digest, digest, digests, tuple(file.state for file in files))


def _imports_of(text: bytes) -> Iterator[str]:
    """Yield the topmost packages that a source imports; none if it cannot be parsed, and so not be imported."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _digest_of(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:24]


# Files ---------------------------------------------------------------------------------------------------------------


class _SourceFile(Struct, frozen=True):
    state: State
    digest: str
    text: bytes = b""

    @staticmethod
    def read(path: str) -> _SourceFile:
        state = _state(path)
        with open(path, "rb") as file:
            text = file.read()
        return _SourceFile(state, hashlib.sha256(text).hexdigest(), text)

    @staticmethod
    def of_native(path: str) -> _SourceFile:
        """Return a native file with its build id as digest, since reading its contents takes long."""
        state = _state(path)
        return _SourceFile(state, _build_id(path) or _SourceFile.read(path).digest)


@functools.cache
def _source(path: str) -> _SourceFile:
    return _SourceFile.read(path)


def _state(path: str) -> State:
    """Return a file's path, inode and size, and when its contents and its inode last changed."""
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
                if build_id := _build_id_in(file.read(min(length, 1 << 16))):
                    return build_id
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


def _files_of_package(top: str) -> Iterator[str]:
    """Yield all files of a package or module without importing it.

    There are none if it is neither a folder nor a source file.
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
    """Return the native libraries of llvmlite, which contain LLVM; none for other packages.

    NumPy's version covers its libraries.
    """
    if top != "llvmlite":
        return ()
    return tuple(path for path in _files_of_package(top) if _NATIVE.fullmatch(path))


def _version(name: str) -> str:
    return str(importlib.import_module(name).__version__)


# Sources -------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _sources_in(folder: Path) -> Store:
    return Store(folder / SOURCES, shipped=SHIPPED / SOURCES)


os.register_at_fork(after_in_child=_sources_in.cache_clear)  # SQLite's connections do not survive a fork


def _programs_of(files: Iterable[_SourceFile], known: Store | None) -> dict[str, str]:
    """Return the digest of each source's program by path; sources that are not in the cache are parsed and added."""
    keys = {file: _READER + file.digest.encode() for file in files}
    kept = {} if known is None else known.get(keys.values())
    fresh = {key: _program_of(file.text).encode() for file, key in keys.items() if key not in kept}
    if known is not None:
        known.put(fresh)
    return {file.state[0]: (kept.get(key) or fresh[key]).decode() for file, key in keys.items()}


def _program_of(text: bytes) -> str:
    """Return the digest of a program: equal for sources that differ only in comments, docstrings and layout."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return hashlib.sha256(text).hexdigest()  # it cannot be imported
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()


def _process_began() -> int:
    """Return when this process began, in nanoseconds since 1970."""
    with suppress(OSError, ValueError, IndexError, AttributeError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.time_ns() - int(age * 1e9)
    return time.time_ns()


_BEGAN = _process_began()
