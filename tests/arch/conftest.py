"""Make the fixture `wait_kernels` of the tests of waits available here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "waits"))
