"""Data hazards that AMD GPUs leave to software: wait counters and wait states. Models, static and dynamic checks, and
what must be inserted."""
