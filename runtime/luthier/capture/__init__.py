"""Launches that were captured from programs, and their replay without the program and without ROCm.

| module | does |
| --- | --- |
| `form` | a capture as data, and its file (docs/capture.md) |
| `pages` | which contents are where, and what differs |
| `grid` | a launch's work-groups in parts |
| `place` | memory at addresses that a capture names, in this process |
| `program` | the code that runs |
| `checking` | the emulated device's checks, of a captured launch |
| `replay` | a captured launch run again, and compared with what was recorded |
| `substitute` | the same by another code object's kernel |
| `against` | other expectations of what it leaves in memory |
| `minimise` | the smallest part of a launch in which a failure remains |
| `export` | a launch as a HIP program of its own |
"""

from __future__ import annotations

from luthier.capture.form import Capture as Capture
from luthier.capture.form import read_capture as read_capture
from luthier.capture.form import write_capture as write_capture
from luthier.capture.pages import Difference as Difference
from luthier.capture.replay import Replayed as Replayed
from luthier.capture.replay import replay as replay

__all__ = ["Capture", "Difference", "Replayed", "read_capture", "replay", "write_capture"]
