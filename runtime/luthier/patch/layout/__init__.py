"""Layout of the instructions of a patched kernel, and fix-ups of its branches, calls and addresses."""
