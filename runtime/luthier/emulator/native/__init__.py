"""Host machine code for variants of operations: generation, linking, storage, loading."""
