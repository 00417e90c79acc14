"""The modules that tests here import, and `called_programs` of the tests of waits."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "waits"))
