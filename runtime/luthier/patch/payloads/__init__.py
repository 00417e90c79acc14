"""Payloads: hooks with registers at their points, as machine code."""
