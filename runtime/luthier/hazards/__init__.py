"""Data hazards that AMD GPUs leave to software: wait counters and wait states. This package contains their models, the
check of all paths that both share (`luthier.hazards.paths`), and the code to insert."""
