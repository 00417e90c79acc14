"""Semantics of single instructions: control flow, registers, lanes."""
