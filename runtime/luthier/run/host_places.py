"""Descriptions of addresses at which a device has no memory."""

from __future__ import annotations

from pathlib import Path

from luthier.emulator.running.memory import null_pointer

_NAMES = {"[heap]": "the host's heap", "[stack]": "the host's stack"}


def host_place(pid: int, address: int) -> str:
    """Describe an address of a process at which a device has no memory; return "" if nothing is known about it.

    Args:
        pid: process, which must wait meanwhile; 0: it has no ID here.
    """
    if null := null_pointer(address):
        return null
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        # Begin and end, permissions, offset, device, inode, and the file.
        extent, permissions, _, _, _, *name = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in extent.split("-"))
        if begin <= address < end and not permissions.startswith("---"):  # ROCr reserves addresses
            if not name:  # perhaps memory of another device
                return "memory of the process that this device may not access"
            return f"{_NAMES.get(name[0]) or f'the file {name[0]} in memory of the host'}: no device may access it"
    return ""
