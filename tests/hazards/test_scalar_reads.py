"""SGPRs on GFX12 where payloads meet the application: no hazard between the two, and no cost where none is possible
(cases: ../filetests/spliced/scalar_reads.test)."""

from __future__ import annotations

import random
from pathlib import Path

import luthier
import pytest
from effort import sample
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from wait_kernels import kernel

HOOKS = (Path(__file__).parents[1] / "filetests/spliced/scalar_reads.hip").read_text()


def found(object: CodeObject) -> list[str]:
    return [str(finding) for finding in check_hazards(lift(object, "k"), unneeded=False).findings]


LINES = [
    *("s_mov_b32 s{0}, s{1}", "s_add_co_u32 s{0}, s{1}, s{2}", "v_mov_b32 v1, s{0}", "v_add_nc_u32 v2, s{0}, v1"),
    *("v_readfirstlane_b32 s{0}, v1", "v_cmp_eq_u32 vcc_lo, v1, v2", "v_cndmask_b32 v3, v1, v2, vcc_lo"),
    *("s_mov_b32 vcc_lo, s{0}", "s_and_b32 s{0}, vcc_lo, s{1}", "v_cmp_eq_u32 s{0}, v1, v2", "s_nop 0"),
    *("s_load_b32 s{0}, s[0:1], 0x0; s_wait_kmcnt 0x0", "s_wait_alu 0x0", "v_writelane_b32 v1, s{0}, 3"),
]


LINES_64 = [
    *(line for line in LINES if "v_cmp" not in line and "v_cndmask" not in line),
    *("v_cmp_eq_u32 vcc, v1, v2", "v_cndmask_b32 v3, v1, v2, vcc", "s_mov_b64 vcc, s[{3}:{4}]"),
    *("v_cmp_eq_u32 s[{3}:{4}], v1, v2", "v_cndmask_b32 v3, v1, v2, s[{3}:{4}]"),
]
"""In waves of 64 lanes, where masks are pairs."""
MARK = "s_nop 13"
GIVEN = "; ".join(["v_mov_b32 v1, v0", *(f"v_mov_b32 v{at}, {at}" for at in (2, 3, 5)), "s_mov_b32 vcc_lo, 9"])
GIVEN += "; " + "; ".join(f"s_mov_b32 s{at}, {at}" for at in range(4, 10)) + "; s_mov_b32 vcc_hi, 3; s_wait_alu 0x0"
ADDRESS = (
    "s_wait_alu 0x0; s_load_b64 s[10:11], s[0:1], 0x0; s_wait_kmcnt 0x0; v_and_b32 v4, 63, v0; v_lshlrev_b32 v4, 6, v4"
)
STORED = "; ".join(
    [
        ADDRESS,
        *(f"global_store_b32 v4, v{at}, s[10:11] offset:{4 * at}" for at in (1, 2, 3)),
        *(f"v_mov_b32 v5, s{at}; global_store_b32 v4, v5, s[10:11] offset:{4 * at}" for at in range(4, 10)),
    ]
)
"""What the application begins with, and what it ends with: all registers go to its buffer, lane by lane."""


class Everywhere(Tool):
    """Any of the hooks before any instruction."""

    def __init__(self, module, rng: random.Random, hoist: bool) -> None:
        super().__init__()
        self.module, self.rng, self.hoist = module, rng, hoist
        self.changes = rng.random() < 0.5
        """Whether hooks change what the application computes."""

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if self.rng.random() < 0.4:
                hook = self.rng.choice(("see", "count", "change") if self.changes else ("see", "count"))
                inputs = () if hook == "count" else (reg(f"s{self.rng.randrange(4, 10)}"),)
                task.insert_hook_before(instruction, getattr(self.module, hook), *inputs)
        if self.hoist:
            task.count(list(task.instructions), per=self.rng.choice(("wave", "lane")))


@pytest.mark.rows(1)
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("seed", sample(range(100), 10))
def test_any_code(make_module, seed: int, lanes: int) -> None:
    """Where waits of the application are what it needs alone, those of the patched kernel are enough, too, also while
    it runs, and it computes the same."""
    rng = random.Random(seed)

    def line() -> str:
        pair = rng.randrange(4, 10, 2)
        chosen = rng.choice(LINES if lanes == 32 else LINES_64)
        return chosen.format(*(rng.randrange(4, 10) for _ in range(3)), pair, pair + 1)

    chosen = "; ".join(line() for _ in range(30))
    lines = [MARK, *chosen.split("; "), "s_cmp_eq_u32 s9, s9", "s_cbranch_scc0 a"]
    label = rng.randrange(1, 10)

    def assembled() -> CodeObject:
        body = "; ".join([GIVEN, *lines[:label], "a:", *lines[label:], STORED])
        return kernel("gfx1201", body, wave_size=lanes)

    object = assembled()
    while findings := check_hazards(lift(object, "k"), unneeded=False).findings:
        lifted = lift(object, "k")
        texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
        at = lifted.index_at(findings[0].consumer.address) - texts.index(MARK)
        lines.insert(at, "s_wait_alu 0x0")
        label += at < label
        object = assembled()
    module = make_module(HOOKS, "gfx1201", both_wave_sizes=True)
    tool = Everywhere(module, rng, seed % 2 == 0)
    patched = patch_object(object, tool.instrument, ["k"], strict=True)
    again = load_object(patched.data)
    assert found(again) == []
    device = luthier.open_device("emu:gfx1201", check=["waits", "hazards"])
    buffer, outputs = device.allocate(4096), []
    for data in (object.data, again.data):
        buffer.write(bytes(4096))
        device.load(data).kernel("k").launch(buffer, grid=1, block=64)
        assert not device.findings
        outputs.append(buffer.read())
    assert any(outputs[0])
    assert outputs[0] == outputs[1] or tool.changes


@pytest.mark.parametrize("hooked", [False, True])
def test_counters_beside_hooks(make_module, hooked: bool) -> None:
    """What a hook has read may be where counters put an address when the wave ends: then it waits, else not."""
    module = make_module(HOOKS, "gfx1201", both_wave_sizes=True)
    branches = "; ".join(f"s_cmp_eq_u32 s4, {at}; s_cbranch_scc1 to{at}; s_nop 0; to{at}: ; s_nop 1" for at in range(4))
    object = kernel("gfx1201", branches)

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions)
        if hooked:
            task.insert_hook_before(0, module.see, reg("s4"))

    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    assert found(patched) == []
    lifted = lift(patched, "k")
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
    flush = max(at for at, text in enumerate(texts) if text.startswith("global_atomic_add_u64"))
    assert texts[flush - 1].startswith("s_wait_alu" if hooked else "s_mov_b32")


def test_verification_tells_what_is_added(make_module) -> None:
    """What the original lacks is told, what only the patched kernel lacks is a problem: here among instructions that
    the tool adds."""
    module = make_module(HOOKS, "gfx1201", both_wave_sizes=True)
    plan = LaunchPlan("k", (1, 1, 1), (32, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "arange"},))

    class Adds(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            task.insert_hook_before(0, module.see, reg("s4"))

    lacking = "v_mov_b32 v1, s8; s_mov_b32 s8, 1; v_mov_b32 v2, s8"
    verdict = verify_kernel(kernel("gfx1201", f"s_mov_b32 s4, 1; {lacking}"), Adds(), plan)
    assert verdict.equal, verdict.problems
    assert len(verdict.hazards) == 1

    class Breaks(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            task.add_before(1, lacking.replace("; ", "\n"))

    verdict = verify_kernel(kernel("gfx1201", f"s_mov_b32 s4, 1; s_nop 0; {lacking}"), Breaks(), plan)
    assert len(verdict.hazards) == 1
    (problem,) = verdict.problems
    assert "VALU read an SGPR, SALU overwrites it" in problem
