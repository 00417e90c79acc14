"""Counters that need no hook: which edges are counted, where counters are kept, and the code that adds to them."""
