"""Data hazards that AMD GPUs leave to software: wait counters and wait states. Models, the check of all paths that both
share (`luthier.hazards.paths`), and what must be inserted."""
