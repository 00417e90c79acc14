"""The `luthier` command. Each sub-command is one module of this package, imported only when it is called."""

import sys


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, if neither is imported.

    From Python 3.11 on, msgspec finds the same in typing. Importing typing_extensions takes a third of the time of a
    short command.
    """
    if {"msgspec", "typing_extensions"}.isdisjoint(sys.modules):
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # its import fails
        try:
            import msgspec  # noqa: F401  only for its place in `sys.modules`
        finally:
            del sys.modules["typing_extensions"]


_import_msgspec()
