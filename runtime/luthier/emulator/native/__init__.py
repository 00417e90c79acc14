"""Host machine code for variants of operations: generated, linked, kept on disk, loaded."""
