"""Code objects by their ROCr URIs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from luthier.errors import ObjectError


def read_uri(uri: str, pid: int) -> bytes:
    """Read the code object that a process has loaded from a URI: ``file://path#offset=…&size=…``, or the whole file.

    Raises:
        ObjectError: the URI does not name a file, or it cannot be read.
    """
    path, _, fragment = uri.removeprefix("file://").partition("#")
    fields = dict(part.partition("=")[::2] for part in fragment.split("&") if part)
    try:
        if not uri.startswith("file://"):
            raise ValueError("it is not in a file")
        # ROCr records the path that the dynamic linker was given, which may be relative.
        with Path(f"/proc/{pid}/cwd", unquote(path)).open("rb") as file:
            file.seek(int(fields.get("offset", "0"), 0))
            return file.read(int(fields["size"], 0)) if "size" in fields else file.read()
    except (OSError, ValueError) as problem:
        raise ObjectError(f"the code object cannot be read: {problem}", object=uri) from None
