"""Reads bitcode, or a code object with bitcode in it, from standard input and prints its manifest, one line a value."""

from __future__ import annotations

import json
import sys
from typing import Any


def manifest_of(data: bytes) -> dict[str, Any]:
    """The manifest as compiler_plugin/README.md says to find it."""
    start = data.index(b'{"luthier":')
    text = data[start:].decode("utf-8", "replace")
    manifest, _ = json.JSONDecoder().raw_decode(text)
    assert isinstance(manifest, dict)
    return manifest


if __name__ == "__main__":
    for key, value in manifest_of(sys.stdin.buffer.read()).items():
        if isinstance(value, list):
            for row in value:
                print(f"{key}: {json.dumps(row, sort_keys=True)}")
        else:
            print(f"{key}: {value}")
