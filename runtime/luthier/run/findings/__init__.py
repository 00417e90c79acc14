"""Findings of the checks of a program, from what its processes report."""
