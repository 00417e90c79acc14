"""Make the fixtures `sequences` and `wait_kernels` of the tests of hazards and waits available here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), *(str(Path(__file__).parents[1] / name) for name in ("hazards", "waits"))]
