"""Compares the functions that python_places.cpp reads with those that the interpreter reports, and prints how often."""

import ctypes
import sys
import threading
import traceback

library = ctypes.CDLL(sys.argv[1])
library.places.restype = ctypes.c_char_p
count = 0


def compare():
    """Compare once."""
    global count
    read = library.places().decode()
    frames = [(one.f_code, line) for one, line in traceback.walk_stack(sys._getframe())][1:]
    wanted = [(getattr(code, "co_qualname", code.co_name), code.co_filename, str(line)) for code, line in frames]
    assert [tuple(line.split("|")) for line in read.splitlines()][1:] == wanted, (read, wanted)
    count += 1


class Größe:
    """Has a name that is not ASCII."""

    def method(self, depth):
        """Call itself in an expression of several lines."""
        if depth:
            called = [
                self.method(one)  #
                for one in (depth - 1,)
            ]
            return called
        return (
            1,
            compare(),
        )


def generator():
    yield Größe().method(2)


def all_ways():
    """Compare in a generator, below native code, and in code without a file."""
    for _ in generator():
        list(map(lambda depth: Größe().method(depth), [1]))  # noqa: C417 - native code calls it
    exec(compile("\n\n\ncompare()\n", "<текст>", "exec"))
    sorted([2, 1], key=lambda value: (compare(), value)[1])


all_ways()
thread = threading.Thread(target=all_ways)
thread.start()
thread.join()
print(f"{count} places")
