"""Makes the modules image_*.py importable, which the tests stand on."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
