"""What generated code depends on: the sources of the emulator and of `luthier.isa`, llvmlite, the host CPU.

`BEFORE` is taken before any other module of the emulator is imported, and `unchanged` compares with it afterwards. Only
if both agree is the code that was generated in between known to come from these sources, and may be kept.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite

from luthier import _mc

_PACKAGE = Path(__file__).parents[1]


def _files() -> Iterator[str]:
    for package in (_PACKAGE, _PACKAGE.parent / "isa"):
        for folder, _, files in sorted(os.walk(package)):
            yield from sorted(os.path.join(folder, name) for name in files if name.endswith(".py"))
    yield _mc.__file__


def state() -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of change of all files."""
    found = ((path, os.stat(path)) for path in _files())
    return tuple((path, status.st_size, status.st_mtime_ns) for path, status in found)


def fingerprint() -> str:
    """Of everything that can change a binding or machine code."""
    digest = hashlib.sha256()
    for path in _files():
        if path == _mc.__file__:  # 20 MB: as it is called, and how large and old it is, must do
            native = os.stat(path)
            digest.update(f"{native.st_size} {native.st_mtime_ns}\n".encode())
            continue
        with open(path, "rb") as file:
            contents = file.read()
        digest.update(f"{os.path.basename(path)} {len(contents)}\n".encode())
        digest.update(contents)
    host, features = _mc.host()
    digest.update(repr((_mc.LLVM_VERSION, llvmlite.__version__, host, features, sys.maxsize)).encode())
    return digest.hexdigest()[:24]


_STATE = state()
BEFORE = fingerprint()


def unchanged() -> bool:
    """Whether everything is still as it was when the emulator was imported."""
    try:
        return state() == _STATE
    except OSError:
        return False
