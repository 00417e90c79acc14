"""Build code objects of HIP sources for several targets, to compile what the emulated device needs for them ahead.

Use: python scripts/build_kernels.py FOLDER TARGET,… SOURCE…
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from luthier.errors import BuildError

from luthier_build.compile import compile_application


def build(source: Path, target: str, folder: Path) -> None:
    """Build the code object of a source for a target; report it if the source is not for that target."""
    try:
        compile_application(source, target, folder / f"{source.stem}-{target}.hsaco")
    except BuildError as problem:
        print(f"{source} for {target}: {problem}".splitlines()[0])


if __name__ == "__main__":
    folder, targets, *sources = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    pairs = [(Path(source), target) for source in sources for target in targets.split(",")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda pair: build(pair[0], pair[1], Path(folder)), pairs))  # raises what a build raises
