"""Liveness in plain Python, function by function the same as `runtime/native/lifting`: what it is checked against.

It is slow and easy to break on purpose, which `test_liveness_faults.py` does to prove that the checks notice.
"""

from __future__ import annotations

from lift_reference.liveness import Liveness

__all__ = ["Liveness"]
