"""From a variant of an operation to host machine code: generated, linked, kept on disk, loaded."""
