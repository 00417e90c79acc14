"""What generated code depends on: the sources of the emulator and of `luthier.mc`, llvmlite, the host CPU.

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

_PACKAGE = Path(__file__).parent


def _files() -> Iterator[str]:
    for folder in (_PACKAGE, _PACKAGE / "operations", _PACKAGE.parent / "mc"):
        yield from sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".py"))


def fingerprint() -> str:
    """Of everything that can change a binding or machine code."""
    digest = hashlib.sha256()
    for path in _files():
        with open(path, "rb") as file:
            contents = file.read()
        digest.update(f"{os.path.basename(path)} {len(contents)}\n".encode())
        digest.update(contents)
    native = os.stat(_mc.__file__)
    host, features = _mc.host()
    rest = (native.st_size, native.st_mtime_ns, _mc.LLVM_VERSION, llvmlite.__version__, host, features, sys.maxsize)
    digest.update(repr(rest).encode())
    return digest.hexdigest()[:24]


BEFORE = fingerprint()


def unchanged() -> bool:
    """Whether everything is still as it was when the emulator was imported."""
    return fingerprint() == BEFORE
