"""Counters without hooks: selection of edges, storage of counters, and the code that adds to them."""
