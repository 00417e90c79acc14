"""Machine code of variants: compiled in batches on first use, kept on disk for the user.

A batch is one object file. Its name is a hash of what it contains; a header lists the symbols. The cache folder's name
holds a hash of the emulator's sources, llvmlite's version and the host CPU, so code is never used with other
assumptions than its own.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from luthier.emulator.declare import Unsupported
from luthier.emulator.emit import emit
from luthier.emulator.nativecode import NativeCode
from luthier.emulator.scheduler import emit_scheduler
from luthier.emulator.support import emit_translate
from luthier.emulator.variant import Variant


@functools.cache
def _source_hash() -> str:
    """Of every file that can change generated code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path | None:
    """Where machine code is kept; None if the user switched it off with an empty LUTHIER_CACHE."""
    setting = os.environ.get("LUTHIER_CACHE")
    if setting == "":
        return None
    base = Path(setting) if setting else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "luthier"
    host = f"{llvm.get_host_cpu_name()}|{llvm.get_host_cpu_features().flatten()}|{sys.maxsize}"
    key = hashlib.sha256(f"{_source_hash()}|{llvmlite.__version__}|{host}".encode()).hexdigest()[:24]
    return base / "emulator" / key


def _forget_old(folder: Path) -> None:
    """Remove the code of other sources or hosts that nobody has added to for a month."""
    limit = time.time() - 30 * 24 * 3600
    for other in folder.parent.iterdir():
        if other != folder and other.is_dir() and other.stat().st_mtime < limit:
            shutil.rmtree(other, ignore_errors=True)


class MachineCode:
    """All compiled operations of this process. One instance serves every device; safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._addresses: dict[str, int] = {}
        self._refusals: dict[str, str] = {}
        self._on_disk: dict[str, Path] = {}
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features().flatten()
        self._target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=f"{features},-prefer-256-bit,-vzeroupper",
            opt=2,
            reloc="pic",
            codemodel="small",
        )
        self._loaded: list[NativeCode] = []
        self._folder = cache_folder()
        self.compiled = 0
        """Functions compiled, not loaded, by this process."""
        if self._folder is not None:
            self._scan()

    def _scan(self) -> None:
        """Learn what the cache holds."""
        if self._folder is None or not self._folder.is_dir():
            return
        for path in self._folder.glob("*.o"):
            try:
                with path.open("rb") as file:
                    names = json.loads(file.readline())
            except (OSError, ValueError):
                continue
            for name in names:
                self._on_disk.setdefault(name, path)

    def addresses(self, variants: Iterable[Variant]) -> dict[Variant, int]:
        """Host address of each variant's function, compiling those not seen before; none for those with a `refusal`.

        Raises:
            Exception: whatever a semantic function raises, with the variant in a note.
        """
        wanted = {variant: variant.symbol for variant in variants}
        with self._lock:
            missing = [variant for variant, symbol in wanted.items() if symbol not in self._addresses]
            if missing:
                self._load(symbol for symbol in (wanted[variant] for variant in missing) if symbol in self._on_disk)
                known = self._addresses.keys() | self._refusals.keys()
                missing = [variant for variant in missing if wanted[variant] not in known]
                for start in range(0, len(missing), 200):
                    self._compile(missing[start : start + 200])
            return {v: self._addresses[symbol] for v, symbol in wanted.items() if symbol in self._addresses}

    def refusal(self, variant: Variant) -> str:
        """Why a variant has no function."""
        return self._refusals[variant.symbol]

    def scheduler(self) -> int:
        """Host address of the compiled scheduler."""
        return self._part("luthier_scheduler", emit_scheduler)

    def translate(self) -> int:
        """Host address of the helper that checks addresses one by one."""
        return self._part("luthier_translate", emit_translate)

    def _part(self, name: str, emit_part: Callable[[ir.Module, str], None]) -> int:
        with self._lock:
            if name not in self._addresses and name in self._on_disk:
                self._load([name])
            if name not in self._addresses:
                module = ir.Module(name)
                emit_part(module, name)
                self._finish(module, [name])
            return self._addresses[name]

    def _compile(self, variants: list[Variant]) -> None:
        module = ir.Module("operations")
        for variant in variants:
            try:
                emit(module, variant)
            except Unsupported as problem:  # its code is half done: begin again without it
                self._refusals[variant.symbol] = str(problem)
                self._compile([other for other in variants if other is not variant])
                return
            except Exception as problem:
                problem.add_note(f"while generating {variant}") if hasattr(problem, "add_note") else None
                raise
        if variants:
            self._finish(module, [variant.symbol for variant in variants])

    def _finish(self, module: ir.Module, names: list[str]) -> None:
        module.triple = llvm.get_process_triple()
        parsed = llvm.parse_assembly(str(module))
        code = self._target.emit_object(parsed)
        self.compiled += len(names)
        self._add(code, names)
        self._save(code, names)

    def _add(self, code: bytes, names: Iterable[str]) -> None:
        native = NativeCode(code)
        self._loaded.append(native)
        for name in names:
            self._addresses[name] = native.symbols[name]

    def _load(self, names: Iterable[str]) -> None:
        for path in {self._on_disk[name] for name in names}:
            try:
                header, _, code = path.read_bytes().partition(b"\n")
                contained = json.loads(header)
            except (OSError, ValueError):
                continue
            fresh = [name for name in contained if name not in self._addresses]
            if fresh:
                self._add(code, fresh)

    def _save(self, code: bytes, names: list[str]) -> None:
        if self._folder is None:
            return
        header = json.dumps(names).encode() + b"\n"
        path = self._folder / f"{hashlib.sha256(header + code).hexdigest()[:24]}.o"
        try:
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True, exist_ok=True)
                _forget_old(self._folder)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(header + code)
            os.replace(file.name, path)
        except OSError:
            return  # a cache that cannot be written costs time, not correctness
        for name in names:
            self._on_disk.setdefault(name, path)


@functools.cache
def machine_code() -> MachineCode:
    """The process's machine code."""
    return MachineCode()
