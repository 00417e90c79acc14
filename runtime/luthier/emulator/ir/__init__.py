"""Typed LLVM values, exact arithmetic, registers, lanes and memory, for the functions of operations."""
