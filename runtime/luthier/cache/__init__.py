"""Results that are kept: on disk with where, how, and what made them; in memory while there is room."""
