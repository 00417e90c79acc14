"""Addresses that no memory of a device is at: what the process has there."""

from __future__ import annotations

from pathlib import Path

from luthier.emulator.running.memory import null_pointer

_NAMES = {"[heap]": "the host's heap", "[stack]": "the host's stack"}


def host_place(pid: int, address: int) -> str:
    """Return what an address of a process is, for which a device has no memory; empty if nothing is known of it.

    Args:
        pid: of the process, which must wait meanwhile; 0: it has none here.
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
            if not name:  # it may be that of another device
                return "memory of the process that this device may not access"
            return f"{_NAMES.get(name[0]) or f'the file {name[0]} in memory of the host'}: no device may access it"
    return ""
