"""Provenance of cached results: the sources that they are made by, native code, Python and LLVM.

Who keeps results declares by which modules and packages they are made, all that these import included
(tests/cache/test_provenance.py holds the lists to the imports). So an edit elsewhere lets them be.

Luthier's sources count by what Python parses them to, without docstrings: comments and layout change no result. Other
packages' files count by content, native code by the build id that its linker gave it (by content where it has none).
Parsing 300 modules takes seconds, so what each comes to is kept, by its content.
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
"""Folder of what came with the package: wheels have it (scripts/wheels), sources have none."""
SOURCES = "sources.sqlite"
CODE_GENERATORS = ("llvmlite", "numpy")
"""Other packages whose versions decide what is made."""
_LOW = (
    *("luthier._mc", "luthier.arch", "luthier.cache", "luthier.errors", "luthier.extensions", "luthier.isa"),
    *("luthier.support", "luthier.terminal", "luthier.wire.structures"),
)
_FINDINGS = ("luthier.findings", "luthier.wire.floats", "luthier.wire.messages")
EMULATOR = (
    *_LOW,
    *(f"luthier.emulator.{name}" for name in ("constants", "ir", "layout", "native", "operations", "questions")),
    *(f"luthier.emulator.binding.{name}" for name in ("bind", "records", "shapes")),
    "luthier.wire.floats",
)
"""Makers of operations of the emulated device, and of what binding finds out about instructions."""
OBJECTS = (*_LOW, "luthier.channels", "luthier.module", "luthier.objects", "luthier.wire.channels")
"""Makers of what is read out of code objects, and of manifests of tool modules."""
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
    """Digest of everything that a result was made by."""

    digest: str
    """Digest of all of it, hexadecimal."""
    own: str
    """Digest of what belongs to the package itself: without Python, LLVM and other packages."""
    files: Mapping[str, str]
    """The digest of each file: of the program that a source of Luthier is, of a library its build id."""
    states: tuple[State, ...]
    """State of each file, from before it was read."""

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


def provenance_of(*makers: str, also: str = "", root: Path = PACKAGE.parent) -> Provenance:
    """Return the provenance of what these modules make.

    Args:
        makers: their names, of packages for all that is in them; nothing is imported.
        also: what else decides what is made.
        root: the folder that their package is in.

    Raises:
        CacheError: there is no such module.
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
    said = [also, sys.implementation.cache_tag, sys.maxsize, [(name, _version(name)) for name in CODE_GENERATORS]]
    return Provenance(
        _digest_of(sorted(files.items()), said),
        _digest_of(sorted(own.items())),
        files,
        tuple(file.state for file in (*sources, *own_libraries, *llvm)),
    )


@functools.cache
def _files_of(root: Path, name: str) -> tuple[str, ...]:
    """Return the files of a module, or of all modules in a package, and those of the packages that it is in, which
    Python runs before it.

    Raises:
        CacheError: there is no such module.
    """
    place = root.joinpath(*name.split("."))
    found = [f"{folder}/{name}" for folder, _, names in os.walk(place) for name in names if name.endswith(".py")]
    if not found:
        beside = map(str, place.parent.glob(f"{place.name}.*"))
        found = [path for path in beside if path.endswith(".py") or _NATIVE.fullmatch(path)]
    if not found:
        raise CacheError(f"no module {name} is in {root}: name the modules that make results by what they are called")
    packages = (folder / "__init__.py" for folder in place.parents if folder != root and folder.is_relative_to(root))
    return *found, *(str(path) for path in packages if path.exists())


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
    """Yield the topmost packages that a source imports; none where it cannot be parsed, and so not be imported."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.partition(".")[0]


def _digest_of(*said: object) -> str:
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


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
        """Return a native file with its build id as digest, since its contents would take long to read."""
        state = _state(path)
        return _SourceFile(state, _build_id(path) or _SourceFile.read(path).digest)


@functools.cache
def _source(path: str) -> _SourceFile:
    return _SourceFile.read(path)


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


@functools.lru_cache(maxsize=8)
def _sources_in(folder: Path) -> Store:
    return Store(folder / SOURCES, shipped=SHIPPED / SOURCES)


os.register_at_fork(after_in_child=_sources_in.cache_clear)  # SQLite's connections do not survive a fork


def _programs_of(files: Iterable[_SourceFile], known: Store | None) -> dict[str, str]:
    """Return by path the digest of the program that each source is; what is not kept of them is parsed and kept."""
    keys = {file: _READER + file.digest.encode() for file in files}
    kept = {} if known is None else known.get(keys.values())
    fresh = {key: _program_of(file.text).encode() for file, key in keys.items() if key not in kept}
    if known is not None:
        known.put(fresh)
    return {file.state[0]: (kept.get(key) or fresh[key]).decode() for file, key in keys.items()}


def _program_of(text: bytes) -> str:
    """Return the digest of a program: equal for sources that differ in comments, docstrings and layout alone."""
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
