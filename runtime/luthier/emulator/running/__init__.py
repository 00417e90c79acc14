"""Memory, objects, waves, launches: the device that executes records."""
