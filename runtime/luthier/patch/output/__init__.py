"""Patched kernels, and the code objects and programs that are written with them."""
