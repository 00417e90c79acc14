"""Addresses that code computes or loads: of data, of functions, and of the targets of indirect jumps."""
