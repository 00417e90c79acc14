"""The user's frame of an instruction: the innermost that is not in a header of a compiler or of ROCm.

Code inlined from headers (``threadIdx``, ``__shfl``, ``std::min``, algorithms of device libraries) is charged to the
line that called it, as readers of profiles expect; `SourceLocation.frames` has the whole chain.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeVar


class _Frame(Protocol):
    """Protocol of a `luthier.objects.source.SourceFrame`."""

    @property
    def file(self) -> str:
        """Return the path."""

    @property
    def line(self) -> int:
        """Return the line; 0: none."""


Frame = TypeVar("Frame", bound=_Frame)

_HIP = (
    r"(?:amd_detail|hcc_detail|nvidia_detail)/|(?:hip|amd)_[^/]*\.h$"
    r"|(?:channel_descriptor|device_functions|driver_types|library_types|math_functions|\w+_types)\.h$"
)
_COMPILER = re.compile(
    r"/lib(?:32|64)?/clang/[^/]+/include/"  # clang's own headers
    r"|/__clang_[^/]*\.h$"
    rf"|/include/hip/(?:{_HIP})"
    r"|/include/c\+\+/"
    r"|/(?:ockl|ocml|opencl|irif|oclc)/src/"  # the device libraries
    r"|/luthier_annotate\.h$"  # calls in it are its callers'
    r"|^<"  # <built-in>
)
_LIBRARIES = (
    "rocprim|rocthrust|thrust|hipcub|rocrand|hiprand|rocwmma|ck|ck_tile|rocblas|hipblas|rocfft|hipfft|rocsparse|hipsparse"
    "|hipsolver|rocsolver|hip|hsa|cub|composable_kernel"
)
_SYSTEM = re.compile(
    rf"^/usr/(?:local/)?(?:include|lib(?:32|64|exec)?)/|/rocm[^/]*/(?:include|lib|llvm)/|/include/(?:{_LIBRARIES})/"
)


@lru_cache(maxsize=1 << 12)
def distance(file: str) -> int:
    """Return the distance of a file from the user: 0 the user's own, 1 a library of the system or ROCm, 2 a header of a
    compiler or HIP.

    Args:
        file: path in debug information; ``..`` is resolved textually.
    """
    path = os.path.normpath(file) if "/" in file else file
    return 2 if _COMPILER.search(path) else 1 if _SYSTEM.search(path) else 0


def user_frame(frames: Sequence[Frame]) -> Frame:
    """Return the frame to which an instruction is charged.

    It is the innermost of the frames nearest to the user (`distance`), preferably with a line.

    Args:
        frames: innermost first, not empty.
    """
    return min(frames, key=lambda frame: (distance(frame.file), not frame.line))


def line_text(file: str, line: int | None) -> str:
    """Return ``file:line``; only the file if the line is 0."""
    return f"{file}:{line}" if line else file


def lines_text(places: Sequence[tuple[str, int]]) -> str:
    """Return the lines of several instructions as ``file:first-last``, for the file that contains most of them.

    Args:
        places: file and line of each known location; line 0: none.

    Returns:
        "" if there are none.
    """
    files = [file for file, _ in places]
    if not files:
        return ""
    file = max(dict.fromkeys(files), key=files.count)
    lines = [line for one, line in places if one == file and line]
    if not lines:
        return file
    first, last = min(lines), max(lines)
    return f"{file}:{first}" + (f"-{last}" if last > first else "")
