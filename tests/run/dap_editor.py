"""A Debug Adapter client; the fixture `open_editor` imports it late, as its package takes half a second to import."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dap
import dap.handler
from commands import MAIN, PATIENCE


class Handler(dap.handler.Handler):
    """Takes what the protocol allows and the client's own does not: answers without a body, numbers of breakpoints."""

    def handle_response(self, response: Any) -> Any:
        if response.success and response.body is None:
            self.client._pending_requests.pop(response.request_seq)
            return type(response.command, (), {})()
        return super().handle_response(response)

    def handle_event(self, event: Any) -> Any:
        if "hitBreakpointIds" in (event.body or {}):
            event.body["hitBreakpointIds"] = [str(one) for one in event.body["hitBreakpointIds"]]
        return super().handle_event(event)


class Editor:
    """A Debug Adapter client and the adapter that it started."""

    def __init__(self, *words: str | Path) -> None:
        argv = [sys.executable, "-c", MAIN, "debug", "--dap", *map(str, words)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.client = dap.Client("luthier")
        self.client.handler = Handler(self.client)
        self._answers: list[Any] = []
        self.take("Initialized")

    def take(self, kind: str) -> Any:
        """Send what is to be sent, and return the next answer or event of a kind."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(self.client.send())
        self.process.stdin.flush()
        while True:
            for at, answer in enumerate(self._answers):
                if type(answer).__name__ == kind:
                    return self._answers.pop(at)
                if type(answer).__name__ == "ErrorResponse":
                    raise AssertionError(self._answers.pop(at))
            ready, _, _ = select.select([self.process.stdout], [], [], 20)
            assert ready, f"no {kind} for {PATIENCE} seconds"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the adapter ended before {kind}"
            self._answers += self.client.receive(data)

    def top(self) -> Any:
        """Return the innermost frame of the stopped wave."""
        self.client.stack_trace(self.stopped.threadId)
        return self.take("StackTraceResponse").stackFrames[0]

    def locals(self, frame: Any) -> Mapping[str, str]:
        """Return the variables of a frame."""
        self.client.scopes(frame.id)
        scope = self.take("ScopesResponse").scopes[0]
        self.client.variables(scope.variablesReference)
        return {one.name: one.value for one in self.take("VariablesResponse").variables}

    def wait(self) -> Any:
        """Return why the launch has stopped."""
        self.stopped = self.take("StoppedEvent")
        return self.stopped
