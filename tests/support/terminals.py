"""The command line in a process of its own, also on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from commands import MAIN


def on_terminal(columns: int, arguments: list[str]) -> str:
    """Return what a command writes to a terminal of this number of columns."""
    main_end, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", MAIN, *arguments], stdout=other, stderr=other)
    os.close(other)
    output = b""
    try:
        while part := os.read(main_end, 4096):
            output += part
    except OSError:  # the other end is closed
        pass
    os.close(main_end)
    assert process.wait() == 0
    return output.decode()
