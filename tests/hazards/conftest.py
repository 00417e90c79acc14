"""`llvm` and `sequences` are for all tests here, and `wait_kernels` of the tests of waits."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "waits"))
