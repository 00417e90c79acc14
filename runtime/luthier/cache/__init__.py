"""Caches of results: on disk, with their location, format and provenance; and in memory, with a bound."""
