"""Typed LLVM values, exact arithmetic, registers, lanes and memory: what operations are written with."""
