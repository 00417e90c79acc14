"""Addresses that code makes or loads: of data, of functions, and where register jumps go."""
