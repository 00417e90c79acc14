"""Agreement of Python and its native libraries: the text of the header that they are built with, and its digest.

Each native library holds the digest of its header. It sends the digest with the first request of a connection to a
run's service, and compares it with the one at the start of memory that it maps. Python asks the executor of this
process for the digest when it loads the library.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator

from luthier.emulator import layout
from luthier.findings.kinds import FindingKind
from luthier.wire import channels, device_requests, memory, messages, spelling, tool_requests, topology
from luthier.wire.structures import FieldLayout, Message, WireStructure

HEADER = "agreement.h"
REMEDY = "build Luthier again (`make setup`), or install it again"


def differs(part: str, other: str) -> str:
    """Return the error message for two parts with different digests."""
    return f"{part} and {other} were built from different sources: {REMEDY}"


@functools.cache
def digest() -> str:
    """Return the digest of all shared declarations: 64 hexadecimal digits."""
    return hashlib.sha256(_declarations().encode()).hexdigest()


def declared_messages() -> list[type[Message]]:
    """Return the messages, each after the messages that it contains."""
    modules = (messages, device_requests, tool_requests)
    values = dict.fromkeys(value for module in modules for value in vars(module).values() if inspect.isclass(value))
    return [value for value in values if issubclass(value, Message) and value is not Message]


def header() -> str:
    """Return the text of `HEADER`."""
    lines = ["// Made by luthier/emulator/agreement.py.", "#pragma once"]
    lines += [f"#include <{name}>" for name in ("cstdint", "string", "string_view", "vector")]
    kept = f'inline constexpr char kDigest[] = "{digest()}", kRemedy[] = "{REMEDY}";'
    return "\n".join([*lines, *spelling.namespace("luthier", [kept]), _declarations(), ""])


def _declarations() -> str:
    return "\n".join(
        [
            *spelling.namespace("luthier::layout", _layouts()),
            *spelling.namespace("luthier::wire", _wire()),
            *spelling.namespace("luthier::topology", _topology()),
        ]
    )


def _layouts() -> Iterator[str]:
    """Yield the emulator's declarations: each layout as a namespace of fields, numbers under their Python names."""
    yield "struct Field { uint32_t offset, size; };"
    for name, value in vars(layout).items():
        if isinstance(value, FieldLayout):
            yield spelling.layout(name, value)
        elif isinstance(value, WireStructure):
            yield from spelling.structure(name.capitalize(), value)
        elif isinstance(value, int) and name.isupper():
            yield f"inline constexpr uint64_t {name} = {value}u;"


def _wire() -> Iterator[str]:
    yield from spelling.enumeration(FindingKind, "uint64_t")
    yield from spelling.PRELUDE
    requests = {part for declared in declared_messages() if declared.REQUEST for part in spelling.parts(declared)}
    for declared in declared_messages():
        yield from spelling.message(declared, requests)
    for name, value in vars(memory).items():
        if isinstance(value, WireStructure):
            yield from spelling.structure("".join(word.capitalize() for word in name.split("_")), value)
    yield from spelling.constants(vars(messages))
    yield from spelling.constants(vars(memory))
    yield from spelling.structure("Ring", channels.RING)
    yield from spelling.enumeration(channels.Mode, "uint32_t")


def _topology() -> Iterator[str]:
    yield from spelling.constants(vars(topology))
    yield "struct Place { const char *path, *there; };"
    places = ", ".join(f'{{"{path}", "{there}"}}' for path, there in topology.PLACES.items())
    yield f"inline constexpr Place kPlaces[] = {{{places}}};"
