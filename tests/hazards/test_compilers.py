"""What compilers make keeps apart all that hardware does not: no finding on any path."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.errors import LiftError
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from luthier.lifting.hazards import check_hazards
from luthier.objects import load_object

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"
FILES = ["algorithms", "arithmetic", "groups", "mathematics", "plain"]
LEVELS = ["-O0", "-O1", "-O2", "-O3"]
HARDWARE = sorted(name for name, target in TARGETS.items() if not target.is_generic)
WAVES = [(name, size) for name in HARDWARE for size in TARGETS[name].wave_sizes]


@pytest.mark.rotating(20)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("target", "lanes"), WAVES)
@pytest.mark.parametrize("file", FILES)
def test_compiled_kernels_keep_apart(compile_object, file: str, target: str, lanes: int, level: str) -> None:
    wave = ["-mwavefrontsize64"] if lanes != TARGETS[target].default_wave_size else []
    flags = (f"-I{KERNELS}", "-ffp-contract=off", level, *wave)
    object = load_object(compile_object(KERNELS / f"{file}.hip", target, *flags))
    for kernel in object.kernels:
        try:
            report = check_hazards(lift(object, kernel))
        except LiftError:
            assert not TARGETS[target].decodes_all  # some kernels of gfx1250 are not lifted
            continue
        assert [str(finding) for finding in report.findings] == []
