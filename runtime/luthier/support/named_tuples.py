"""Named tuples where time matters."""

from __future__ import annotations

new_tuple = tuple.__new__
"""Makes a named tuple of a class and a sequence of all its fields, in half the time that the class needs.

It neither checks the number of fields nor fills in defaults.
"""
