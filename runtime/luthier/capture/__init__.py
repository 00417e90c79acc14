"""Launches captured from programs, and their replay without the program and without ROCm.

| module | contents |
| --- | --- |
| `form` | a capture as data, and its file (docs/capture.md) |
| `pages` | contents of pages by address, and differences |
| `page_store` | pages of captures in memory, those that stay the same once |
| `grid` | parts of a launch's grid |
| `place` | memory of this process at the addresses of a capture |
| `program` | the code that runs |
| `replay` | replay of a launch, and comparison with the recorded results |
| `room` | memory that replays share |
| `substitute` | replay with the kernel of another code object |
| `against` | other expected contents of memory |
| `minimise` | the smallest part of a launch that still fails |
| `export` | a launch as a standalone HIP program |
"""

from __future__ import annotations

from luthier.capture.form import Capture as Capture
from luthier.capture.form import read_capture as read_capture
from luthier.capture.form import write_capture as write_capture
from luthier.capture.pages import Difference as Difference
from luthier.capture.replay import Replayed as Replayed
from luthier.capture.replay import replay as replay

__all__ = ["Capture", "Difference", "Replayed", "read_capture", "replay", "write_capture"]
