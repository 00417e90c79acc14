"""``luthier/channel_layout.h``: channels for device code, in C++14.

Projects compile it without Luthier's build, so it is part of the sources; the build updates it.
"""

from __future__ import annotations

from collections.abc import Iterator

from luthier.wire import channels, spelling

PATH = "compiler_plugin/include/luthier/channel_layout.h"


def header() -> str:
    """Return the text of the header."""
    head = ["//===- luthier/channel_layout.h - channels in memory -----------------------===//", "//"]
    head += ["// Part of Luthier, under the Apache License v2.0.", "//"]
    head += ["// Made from luthier/wire/channels.py of the runtime, which says what each field is.", "//"]
    head += ["//===----------------------------------------------------------------------===//"]
    head += ["#ifndef LUTHIER_CHANNEL_LAYOUT_H", "#define LUTHIER_CHANNEL_LAYOUT_H", "", "#include <luthier/luthier.h>"]
    head += ["", f'#define LUTHIER_CHANNEL_MAGIC "{channels.MAGIC.rstrip(bytes(1)).decode()}"', ""]
    body = spelling.namespace("luthier", spelling.namespace("detail", _declarations()))
    return "\n".join([*head, *body, "", "#endif", ""])


def _declarations() -> Iterator[str]:
    for name in ("CHANNEL", "FIELD", "RING"):
        yield from spelling.structure(name.capitalize(), getattr(channels, name))
    for kinds, type in ((channels.Mode, "uint32_t"), (channels.Kind, "uint32_t"), (channels.Passed, "uint64_t")):
        yield from spelling.enumeration(kinds, type, scoped=False)
    yield "enum : uint32_t {"
    for name in ("VERSION", "LARGEST_RECORD", "LINE_WORDS", "LINE_MORE", "LINE_FIRST", "LINE_MOST"):
        yield f"  {spelling.camel(name)} = {getattr(channels, name)},"
    yield "};"
