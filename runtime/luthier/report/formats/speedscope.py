"""All numbers by stack of calls, as a file for https://www.speedscope.app."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

from luthier.report.formats.declare import ReportFormat

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write one profile for each number, with the kernel as the innermost call of each stack.

    Raises:
        LuthierError: the run has no stacks.
    """
    from luthier import __version__
    from luthier.report.stacks import COUNTED, LaunchStacks
    from luthier.support import strict_json

    stacks = LaunchStacks.of(folder)
    frames: list[dict[str, Any]] = []
    for frame in stacks.frames:
        place = (
            {"file": frame.file, "line": frame.line} if frame.file else {"file": frame.object} if frame.object else {}
        )
        frames.append({"name": frame.name, **place})
    frames += [{"name": name} for name in stacks.kernels]
    profiles = []
    for name in stacks.known:
        rows = [row for row in stacks.rows if row.numbers[name]]
        weights = [row.numbers[name] or 0 for row in rows]
        title = f"{name} (emulated)" if name == "time" and stacks.is_emulated else name
        title += f" ({stacks.partial})" if name in COUNTED and stacks.partial else ""
        profiles.append(
            {
                "type": "sampled",
                "name": title,
                "unit": "nanoseconds" if name == "time" else "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [[*row.frames, len(stacks.frames) + row.kernel] for row in rows],
                "weights": weights,
            }
        )
    data = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"luthier {__version__}",
        "name": " ".join(folder.summary.command) or "run",
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    out.write(strict_json.dumps(data).encode() + b"\n")


FORMAT = ReportFormat(help="all numbers by the host's stack of calls, for speedscope.app", write=write)
