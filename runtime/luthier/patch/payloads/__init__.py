"""Payloads: the machine code of hooks with registers at their points."""
