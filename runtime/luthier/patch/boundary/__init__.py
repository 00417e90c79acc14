"""Conditions at the boundary between a payload and the application's code next to it."""
