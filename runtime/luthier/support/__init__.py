"""Utilities that every part of Luthier uses: files, processes, tables, entry points, memory of devices."""
