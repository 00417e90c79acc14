"""The service of a run: plans and binds kernels for every process of the program, over a private Unix socket."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
from collections.abc import Sequence

import numpy as np

from luthier.emulator import layout
from luthier.emulator.constants import inline_bytes
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running import start as abi
from luthier.errors import DeviceError, LuthierError
from luthier.run import protocol
from luthier.run.executed import Executed
from luthier.run.faults import describe
from luthier.run.instrumentation import Instrumentation
from luthier.run.planner import Plan, Planner
from luthier.run.protocol import Reader, Request, Writer
from luthier.run.sessions import Session
from luthier.run.space import BASE, CODE_SIZE, SIZE, SharedSpace
from luthier.run.virtual_gpus import VirtualGpu
from luthier.terminal import say_text, visible_lines


class _Shared:
    """Memory that one process shares with others: its file, and its size."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size


class Service:
    """Answers the processes of a program, each connection on a thread of its own.

    Raises:
        DeviceError: the host does not allow what it needs.
    """

    def __init__(
        self,
        devices: Sequence[VirtualGpu],
        instrumentation: Instrumentation | None = None,
        executed: Executed | None = None,
    ) -> None:
        self._devices = devices
        self._instrumentation = instrumentation
        self._executed = executed
        self._space = SharedSpace()
        machine_code().load_into(self._space)
        self._planner = Planner(self._space)
        self._lock = threading.Lock()
        self._shared: dict[int, _Shared] = {}

    # Connections ----------------------------------------------------------------------------------------------------

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] != os.geteuid():
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="luthier-run", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        sessions: list[Session] = []
        try:
            self._converse(connection, sessions)
        finally:
            for session in sessions:
                if self._instrumentation is not None:
                    self._instrumentation.disconnect(session)

    def _converse(self, connection: socket.socket, sessions: list[Session]) -> None:
        told = pid = 0
        with connection, contextlib.suppress(OSError):
            while True:
                try:
                    message = protocol.receive(connection)
                    if message is None:
                        return
                    kind, payload, descriptors = message
                except LuthierError:
                    return
                reply, sent = Writer(), list[int]()
                try:
                    reply.number(0)
                    if kind < Request.INSTRUMENT:
                        if kind == Request.HELLO:
                            pid, body = self._hello(Reader(payload))
                            sent = [self._space.fd]
                        elif not pid:
                            raise protocol.ProtocolError(f"a message of kind {kind} before the first")
                        elif kind == Request.PLAN:
                            body = self._plan(pid, Reader(payload))
                        else:
                            body, sent = self._answer(kind, Reader(payload), descriptors)
                        imports = [] if kind == Request.HELLO else self._space.imports[told:]
                        told += len(imports)
                        reply.number(len(imports))
                        for name in imports:
                            reply.text(name)
                    elif self._instrumentation is None:
                        raise DeviceError("no tools in this run")
                    elif not sessions and kind != Request.INSTRUMENT:
                        raise protocol.ProtocolError(f"a message of kind {kind} before the first")
                    elif not sessions:
                        session, body, sent = self._instrumentation.connect(Reader(payload))
                        sessions.append(session)
                    else:
                        body, sent = self._instrumentation.answer(sessions[0], kind, Reader(payload))
                    reply.data += body.data
                except LuthierError as problem:
                    reply = Writer().number(1).text(visible_lines(str(problem)))
                except Exception as problem:  # a bug of ours: the program is told, and its process goes on
                    import traceback

                    say_text(traceback.format_exc(), file=sys.stderr, end="")
                    reply = Writer().number(1).text(f"the Luthier service failed: {problem!r}")
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                protocol.send(connection, bytes(reply.data), sent)

    # Answers --------------------------------------------------------------------------------------------------------

    def _answer(self, kind: int, request: Reader, descriptors: list[int]) -> tuple[Writer, list[int]]:
        if kind == Request.BIND:
            self._planner.bind(request.number(), request.number(), request.number())
            return Writer(), []
        if kind == Request.EXPLAIN:
            return Writer().text(visible_lines(self._explain(request))), []
        if kind == Request.COUNTS:
            self._count(request)
            return Writer(), []
        if kind == Request.SHARE and len(descriptors) == 1:
            with self._lock:
                name = len(self._shared) + 1
                self._shared[name] = _Shared(os.dup(descriptors[0]), request.number())
            return Writer().number(name), []
        if kind == Request.ATTACH:
            shared = self._shared.get(request.number())
            if shared is None:
                raise DeviceError("a handle of memory that nobody shares")
            return Writer().number(shared.size), [shared.fd]
        raise protocol.ProtocolError(f"a message of kind {kind}")

    def _count(self, request: Reader) -> None:
        if self._executed is None:
            raise protocol.ProtocolError("counts that nobody asked for")
        for _ in range(request.number()):
            number = request.number()
            rows = np.frombuffer(request.take(request.number() * 24), np.uint64).reshape(-1, 3).astype(np.int64)
            if number >= len(self._planner.codes):
                raise protocol.ProtocolError("counts of code that was never planned")
            planned = self._planner.codes[number]
            if len(rows) and rows[:, 0].max() >= planned.code.count:
                raise protocol.ProtocolError("counts of code that was never planned")
            self._executed.add(planned.object, planned.code.addresses()[rows[:, 0]], rows[:, 1], rows[:, 2])

    def _hello(self, request: Reader) -> tuple[int, Writer]:
        """The process, and what it is told of the devices."""
        protocol.agree(request)
        pid = request.number()
        code = machine_code()
        reply = Writer().number(BASE, SIZE, CODE_SIZE, abi.SHARED_BASE, abi.PRIVATE_BASE, code.scheduler)
        reply.number(code.translate).string(inline_bytes()).number(self._executed is not None, len(self._devices))
        for device in self._devices:
            reply.text(device.target.target.name).number(*device.numbers)
        return pid, reply

    def _plan(self, pid: int, request: Reader) -> Writer:
        device, address, descriptor = request.number(), request.number(), request.string()
        load_address, is_file, uri, contents = request.number(), request.number(), request.text(), request.string()
        if device >= len(self._devices) or len(descriptor) != 64:
            raise protocol.ProtocolError("a malformed request for a plan")
        target = self._devices[device].target
        patched = self._instrumentation and self._instrumentation.companion_at(pid, device, load_address)
        plan: Plan | None
        if patched and is_file and patched.kernel.descriptor_address == address:
            plan = self._planner.plan_code(target, patched.kernel, f"{patched.object.name}, patched", patched.code())
            plan.code.code.origin = patched.origin
        elif is_file:
            plan = self._planner.plan_file(target, address, load_address, uri, contents)
        else:
            plan = self._planner.plan_memory(target, address, descriptor, load_address, contents)
        return Writer().number(0 if plan is None else plan.address)

    def _explain(self, request: Reader) -> str:
        number, reason = request.number(), request.number()
        context, group, waves, ranges = (request.string() for _ in range(4))
        if number >= len(self._planner.plans) or len(ranges) % layout.RANGE_SIZE:
            raise protocol.ProtocolError("a malformed report of a fault")
        plan = self._planner.plans[number]
        code = plan.code.code
        return describe(reason, plan.kernel.name, code, context, group, waves, np.frombuffer(ranges, np.uint64))
