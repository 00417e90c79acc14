"""Counts the instructions a kernel executes: vector ones per active lane or per wave, scalar ones per wave."""
