"""Findings of the checks of a program: their form, suppressions, and the formats that they are written in."""
