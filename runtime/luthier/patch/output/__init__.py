"""Patched kernels, and the code objects and programs that contain them."""
