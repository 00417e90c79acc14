"""Tools in a run: what the tool library in a program asks for.

A *session* is one process of the program. It has a row of counts for each kernel that it launched, and blocks of
variables for each of its devices. Both are in memory that it shares with this process, so that they are there whatever
becomes of it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from luthier.errors import DeviceError, LuthierError, ObjectError, ToolError
from luthier.module import ToolModule
from luthier.objects import CodeObject, Kernel
from luthier.patch import KernelReport, RefusedError
from luthier.patch.companion import Companion, VariableBlock, patch_beside
from luthier.run.protocol import ProtocolError, Reader, Request, Writer
from luthier.run.selection import Selection
from luthier.tool import ToolGroup

ROWS = 1 << 16
"""Kernels of a process that are counted; those beyond run uncounted."""
ROW = np.dtype([("launches", "<u8"), ("instrumented", "<u8"), ("reserved", "<u8", 6)])
"""`Row` of client.h."""


class SharedMemory:
    """A file of memory, and its bytes here."""

    def __init__(self, name: str, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.fd, self.size), np.uint8)


@dataclass(frozen=True)
class Patched:
    """What is known of a kernel after an attempt to instrument it."""

    companion: Companion | None
    """None: the original runs, for the reason given."""
    reason: str = ""
    report: KernelReport | None = None


@dataclass
class LaunchedKernel:
    """A kernel that a process launched."""

    name: str
    object: str
    """The code object's name."""
    gpu: int
    row: int
    patched: Patched


@dataclass
class Session:
    """One process of the program."""

    pid: int
    rows: SharedMemory
    objects: list[CodeObject] = field(default_factory=list)
    kernels: list[LaunchedKernel] = field(default_factory=list)
    blocks: dict[tuple[int, int], SharedMemory] = field(default_factory=dict)
    """By device and number of the block."""

    @property
    def counts(self) -> NDArray[np.void]:
        """`ROW`s, by the kernels' numbers."""
        return self.rows.bytes[: ROWS * ROW.itemsize].view(ROW)


class Instrumentation:
    """The tools of a run, at work on all processes of the program. Safe from several threads."""

    def __init__(self, tools: ToolGroup, selection: Selection) -> None:
        self.tools = tools
        self.selection = selection
        self.sessions: list[Session] = []
        self.faults: list[str] = []
        """What went wrong in the program's processes; the originals ran."""
        self._lock = threading.Lock()
        self._blocks: dict[int, VariableBlock] = {}
        self._patched: dict[tuple[bytes, str], Patched] = {}

    @property
    def blocks(self) -> list[VariableBlock]:
        """The variables of the tools' modules; blocks are numbered in this order."""
        return list(self._blocks.values())

    # Requests -------------------------------------------------------------------------------------------------------

    def connect(self, request: Reader) -> tuple[Session, Writer, list[int]]:
        """A process has loaded the library."""
        session = Session(request.number(), SharedMemory("luthier-counts", ROWS * ROW.itemsize))
        with self._lock:
            self.sessions.append(session)
        selection = self.selection
        reply = Writer().number(selection.first, selection.end, selection.step, selection.unique_grid, ROWS)
        return session, reply, [session.rows.fd]

    def answer(self, session: Session, kind: int, request: Reader) -> tuple[Writer, list[int]]:
        """Do what a process asks."""
        if kind == Request.OBJECT:
            return Writer().number(self._object(session, request.text(), request.string())), []
        if kind == Request.KERNEL:
            return self._kernel(session, request), []
        if kind == Request.BLOCK:
            memory = self._block(session, request.number(), request.number())
            return Writer().number(memory.size), [memory.fd]
        if kind == Request.FAULT:
            fault = request.text()
            with self._lock:
                if fault not in self.faults:
                    self.faults.append(fault)
            return Writer(), []
        raise ProtocolError(f"a message of kind {kind}")

    def _object(self, session: Session, uri: str, contents: bytes) -> int:
        data = contents or read_uri(uri)
        session.objects.append(CodeObject(data, unquote(uri.partition("#")[0]).removeprefix("file://")))
        return len(session.objects) - 1

    def _kernel(self, session: Session, request: Reader) -> Writer:
        gpu, number, address = request.number(), request.number(), request.number()
        if number >= len(session.objects):
            raise ProtocolError("a kernel of an object that was never sent")
        object = session.objects[number]
        kernel = next((k for k in object.kernels.values() if k.descriptor_address == address), None)
        if kernel is None:
            raise ObjectError("a kernel is launched of which the code object says nothing", object=object.name)
        with self._lock:
            patched = self._patch(object, kernel, gpu)
            row = len(session.kernels)
            session.kernels.append(LaunchedKernel(kernel.name, object.name, gpu, row, patched))
        reply = Writer().number(row).text(kernel.name).text(kernel.symbol)
        if patched.companion is None:
            return reply.string(b"").number(0)
        reply.string(patched.companion.data).number(len(patched.companion.blocks))
        numbers = {id(block): position for position, block in enumerate(self._blocks.values())}
        for block in patched.companion.blocks:
            reply.text(block.symbol).number(numbers[id(block)])
        return reply

    def _patch(self, object: CodeObject, kernel: Kernel, gpu: int) -> Patched:
        skipped = self.selection.skips(kernel.name, gpu)
        if skipped is not None:
            return Patched(None, skipped)
        key = hashlib.blake2b(object.data).digest(), kernel.name
        found = self._patched.get(key)
        if found is None:
            found = self._patched[key] = self._instrument(object, kernel)
        return found

    def _instrument(self, object: CodeObject, kernel: Kernel) -> Patched:
        try:
            companion = patch_beside(object, kernel.name, self.tools.instrument, self._block_of)
        except RefusedError as problem:
            return Patched(None, str(problem), problem.report.kernels[0])
        except LuthierError as problem:
            return Patched(None, str(problem))
        except Exception as problem:  # whatever a tool's own code raises
            return Patched(None, f"a tool failed: {problem!r}")
        if companion is None:
            return Patched(None, "the tools insert nothing")
        return Patched(companion, "", companion.report.kernels[0])

    def _block_of(self, module: ToolModule) -> VariableBlock:
        block = self._blocks.get(id(module))
        if block is None:
            if any(variable.pointers for variable in module.variables.values()):
                raise ToolError(
                    "a variable holds an address initially, which `luthier run` cannot do", object=module.name
                )
            block = VariableBlock.of(module, f"luthier.variables.{len(self._blocks)}")
            self._blocks[id(module)] = block
        return block

    def _block(self, session: Session, gpu: int, number: int) -> SharedMemory:
        with self._lock:
            found = session.blocks.get((gpu, number))
            if found is not None:
                return found
            blocks = self.blocks
            if number >= len(blocks):
                raise DeviceError("a request for variables that no tool has")
            block = blocks[number]
            memory = session.blocks[gpu, number] = SharedMemory("luthier-variables", max(block.size, 1))
            for name, offset in block.offsets.items():
                initial = block.module.variables[name].initial
                memory.bytes[offset : offset + len(initial)] = np.frombuffer(initial, np.uint8)
            return memory


def read_uri(uri: str) -> bytes:
    """The code object that ROCr calls so: ``file://path#offset=…&size=…``, or the whole file.

    Raises:
        ObjectError: it is no file's, or cannot be read.
    """
    path, _, fragment = uri.removeprefix("file://").partition("#")
    fields = dict(part.partition("=")[::2] for part in fragment.split("&") if part)
    try:
        if not uri.startswith("file://"):
            raise ValueError("it is in no file")
        with Path(unquote(path)).open("rb") as file:
            file.seek(int(fields.get("offset", "0"), 0))
            return file.read(int(fields["size"], 0)) if "size" in fields else file.read()
    except (OSError, ValueError) as problem:
        raise ObjectError(f"the code object cannot be read: {problem}", object=uri) from None


def sums(sessions: Sequence[Session], blocks: Sequence[VariableBlock]) -> dict[str, int]:
    """Every variable of at most 8 bytes, added up over processes and devices."""
    total: dict[str, int] = {}
    for session in sessions:
        for (_, number), memory in session.blocks.items():
            block = blocks[number]
            for name, offset in block.offsets.items():
                size = block.module.variables[name].size
                if size <= 8:
                    total[name] = total.get(name, 0) + int.from_bytes(memory.bytes[offset : offset + size], "little")
    return total
