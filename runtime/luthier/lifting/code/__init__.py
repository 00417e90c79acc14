"""The code of one kernel: decoded text, reachable code, blocks, and regions where nothing can be inserted."""
