"""Generic processors: their code must satisfy every processor that runs it."""

from __future__ import annotations

import warnings

import luthier
import numpy as np
import pytest
from luthier.arch.targets import processors_of
from luthier.emulator import CheckWarning
from luthier.hazards.wait_states import check_hazards
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa.targets import TARGETS
from luthier.lifting import lift
from pair_findings import lacks
from wait_kernels import kernel

GENERIC = "gfx9-4-generic"
MFMA = "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[12:13], v[0:3]"
OVERWRITES = "v_mov_b32 v0, 0"


@pytest.mark.parametrize("target", [name for name, target in TARGETS.items() if target.is_generic])
def test_rows_are_the_strictest(target: str) -> None:
    """Each row of each processor is there, with no fewer wait states."""
    members = processors_of(TARGETS[target])
    assert len(members) > 1
    for lanes in TARGETS[target].wave_sizes:
        rules = {rule.hazard.name: rule for rule in hazard_model(TARGETS[target], lanes).rules}
        for member in members:
            for own in hazard_model(member, lanes).rules:
                assert all(rules[own.hazard.name].needed(tag) >= own.needed(tag) for tag in (0, 2, 4, 8, 16))


BODY = f"{MFMA}; s_nop 6; {OVERWRITES}"
LACKS = "7 wait states, it needs 8 on gfx950 only"


def test_findings_tell_who_needs_it() -> None:
    """Cases: ../filetests/check/hazards_static.test."""
    (finding,) = check_hazards(lift(kernel(GENERIC, BODY), "k")).findings
    assert finding.lacking == LACKS
    assert finding.to_json()["only_on"] == ["gfx950"]
    assert LACKS in str(finding)


@pytest.mark.parametrize("device", ["gfx942", "gfx950"])
def test_while_it_runs(device: str) -> None:
    device = luthier.open_device(f"emu:{device}", check="hazards")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(kernel(GENERIC, BODY).data).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=64)
    assert [lacks(one) for one in device.findings] == [LACKS]
