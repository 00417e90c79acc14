"""Sub-commands of `luthier` that belong to the build side."""
