"""Faults of the native liveness, planted in a copy of its sources that is compiled into a module of its own.

All are in one module, where `plant` chooses among them, so that it is compiled once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pybind11
from kept import ROOT, kept, run, version
from luthier.isa import registers
from luthier.lifting import LiftedRepresentation, Liveness
from luthier.lifting.instructions.effects import Columns, EffectTable, register_lists
from luthier.lifting.liveness import flow_of
from msgspec.structs import replace

NATIVE = ROOT / "runtime" / "native"
MODULE = "planted_liveness"
MAIN = """\
#include "unit_numbers.h"
#define LUTHIER_VGPRS 256
#define LUTHIER_FLOW planted
static int chosen_fault = -1;
#include "lifting/widths/sources.h"
namespace luthier { void answer_signals() {} }
PYBIND11_MODULE(planted_liveness, m) {
  luthier::planted::bind_flow(m, "");
  m.def("plant", [](int number) { chosen_fault = number; });
}
"""


@dataclass(frozen=True)
class Fault:
    """A mistake in the sources.

    Attributes:
        file: where it is.
        right: an expression, or the beginning of a statement, which is there once.
        wrong: an expression, or whole statements, in its place.
        shown_by: number of a random program that shows it; None: `waits_without_lanes` does.
    """

    file: str
    right: str
    wrong: str
    shown_by: int | None = None

    def planted(self, text: str, number: int) -> str:
        """Return the source with the fault beside what is right.

        Raises:
            AssertionError: the source has no such place any more, or several.
        """
        assert text.count(self.right) == 1, f"{self.file}: {text.count(self.right)} times {self.right!r}"
        if self.wrong.endswith((";", "}")) and not self.wrong.endswith("{}"):
            both = f"if (chosen_fault == {number}) {{ {self.wrong} }} else {self.right}"
        else:
            both = f"(chosen_fault == {number} ? ({self.wrong}) : ({self.right}))"
        return text.replace(self.right, both)


EVALUATED = "return {everything & ~where[0], where[1]};"
FORGETS = "return writes.has(unit_of(entry.key));"
FAULTS: dict[str, Fault] = {
    # What operations do with masks
    "saves_the_new_mask": Fault(
        "mask_operations.cpp", "state.put(target, {old, old});", "state.put(target, {state.on, state.on});", 17
    ),
    "learns_the_opposite_of_the_mask": Fault(
        "lane_masks.cpp",
        EVALUATED,
        "std::swap(about[0][0], about[0][1]); std::swap(about[0][2], about[0][3]);"
        "return {everything & ~where[0], where[1]} ;",
        71,
    ),
    "takes_a_bitwise_operation_for_exact": Fault("lane_masks.cpp", EVALUATED, "return {where[1], where[1]};", 17),
    "a_compare_finds_all_lanes": Fault(
        "mask_operations.cpp", "state.put(target, {0, state.on});", "state.put(target, {state.on, state.on});", 17
    ),
    "a_compare_into_exec_keeps_all_lanes": Fault(
        "mask_operations.cpp",
        "spread = action == kWriteExec ? new_exec(*this, state) : state.change_exec({0, state.on});",
        "if (action == kWriteExec) spread = new_exec(*this, state);",
        246,
    ),
    "overwritten_masks_stay_known": Fault("lane_masks.cpp", FORGETS, "return false;", 73),
    "a_mask_kept_in_a_lane_survives": Fault(
        "lane_masks.cpp", FORGETS, "return !is_lane(entry.key) && writes.has(unit_of(entry.key)) ;", 73
    ),
    "halves_are_interchangeable": Fault(
        "lane_masks.cpp",
        "return held(source);",
        "std::optional<Held> any = this->held(source); if (any) any->half = kEitherHalf; return any;",
        246,
    ),
    "a_selected_mask_is_the_first": Fault(
        "mask_operations.cpp", "if (!left || !right || left->half + right->half == 1)", "return left;", 71
    ),
    "half_of_exec_is_nothing": Fault(
        "mask_operations.cpp",
        "spread = state.change_exec({(lanes & kBecomesInactive",
        "spread = state.change_exec({on, on});",
        17,
    ),
    "whatever_comes_from_a_lane_was_there_before": Fault(
        "mask_operations.cpp", "state.set(target, held, origin);", "state.set(target, held, target);", 479
    ),
    # Groups
    "a_join_forgets_nothing": Fault(
        "lane_masks.cpp",
        "if (includes(other)) {",
        "if (count) { for (int group = 0; group < other.count; ++group) into.push_back(std::min(group, count - 1));"
        "return false; }",
        17,
    ),
    "groups_are_taken_together_blindly": Fault(
        "lane_masks.cpp",
        "if (count <= kMostGroups)",
        "std::vector<int> to; for (int group = 0; group < count; ++group) to.push_back(std::min(group, 2));"
        "if (count > 3) { renumber(to, 3); for (Groups &groups : spread) { Groups changed = 0;"
        "each_group(groups, [&](int group) { changed |= Groups(1) << to[size_t(group)]; }); groups = changed; } }"
        "return;",
        17,
    ),
    "no_lane_is_active_on_either_way": Fault(
        "lane_flow.cpp",
        "empty && state.on != state.everything() ? state.on : 0",
        "block.exit == Exit::kConditional && state.on != state.everything() ? state.on : 0",
        17,
    ),
    "lanes_stay_where_they_are": Fault(
        "liveness.cpp",
        "each_group(spread[group], [&](int behind) { before[group] |= live[size_t(behind)]; });",
        "before[group] = live[size_t(__builtin_ctzll(spread[group]))];",
        17,
    ),
    # Calls
    "calls_leave_exec_alone": Fault("lane_flow.cpp", "if (keeps)", "return {};", 320),
    "calls_leave_scalars_alone": Fault(
        "lane_flow.cpp",
        "lost |= changes_[size_t(callee)] | writes_[size_t(callee)];",
        "lost |= writes_[size_t(callee)];",
        320,
    ),
    "what_one_way_leaves_alone_is_left_alone": Fault(
        "lane_masks.cpp", "changed |= origins->join(*other.origins);", ";", 320
    ),
    "calls_fill_nothing": Fault("written.cpp", "if (!call.known)", "return total;", 71),
    "callees_run_with_all_lanes": Fault("written.cpp", "look_at_callers();", ";", 17),
    "what_callers_read_is_dead_in_callees": Fault("liveness.cpp", "known = all;", ";", 17),
    "inactive_lanes_pass_nothing_through_calls": Fault(
        "liveness.cpp", "repeat<Sets>(through.inactive_inactive)", "Bits<Sets>()", 17
    ),
    # What registers are filled by
    "the_launch_fills_nothing": Fault(
        "written.cpp", "result[size_t(root.block)] = {at_launch, {}};", "result[size_t(root.block)] = {};", 17
    ),
    "only_writes_in_the_block_fill": Fault(
        "written.cpp",
        "for (size_t number = 0; number < result.size(); ++number)",
        "return std::vector<Filled>(result.size(), Filled{at_launch, {}});",
        17,
    ),
    "only_launched_lanes_are_ever_active": Fault(
        "written.cpp", "return !(lanes.on & ~lanes.own) && all(block, entered_inside_);", "return true;", 73
    ),
    "no_lane_is_written_unless_active": Fault(
        "segments.cpp", "segment.writes_anywhere |= effects.writes & kVectors;", ";", 73
    ),
    "inactive_lanes_were_never_launched": Fault(
        "written.cpp", "return all(block, entered_full_) ? lanes.outside : 0;", "return ~lanes.on;", 17
    ),
    "what_is_stored_unwritten_is_nothing": Fault("written.cpp", "return seen;", "return {};", 2),
    # Backward over instructions
    "only_active_lanes_are_read": Fault(
        "liveness.cpp", "live[group] |= active ? reads : cross;", "if (active) live[group] |= reads;", 17
    ),
    "inactive_lanes_are_overwritten": Fault(
        "liveness.cpp", "live[group] -= active ? kills : hard;", "live[group] -= kills;", 17
    ),
    "scalars_are_dead_before_calls": Fault("liveness.cpp", "live[0] & repeat<Sets>(kScalars)", "Bits<Sets>()"),
}
IMPRECISE = {
    "nothing_is_known_of_masks": Fault("lane_masks.cpp", "if (value == Mask{0, everything()})", "return;"),
    "everything_is_filled": Fault(
        "written.cpp",
        "result[size_t(root.block)] = {at_launch, {}};",
        "result[size_t(root.block)] = {kVectors, kVectors};",
    ),
    "lanes_are_active_where_exec_is_zero": Fault(
        "lane_flow.cpp", "empty && state.on != state.everything() ? state.on : 0", "Groups(0)"
    ),
    "writes_leave_what_was_there": Fault("liveness.cpp", "live[group] -= active ? kills : hard;", ";"),
    "calls_may_change_exec": Fault("lane_flow.cpp", "if (keeps)", ";"),
}
"""Mistakes that are safe, but call registers live without need."""
NUMBERS = {name: number for number, name in enumerate([*FAULTS, *IMPRECISE])}


class Planted:
    """The native analysis with one of the faults, or none."""

    def __init__(self) -> None:
        self._native = _module()

    @contextmanager
    def fault(self, name: str | None) -> Iterator[None]:
        """Make the analysis wrong meanwhile."""
        self._native.plant(-1 if name is None else NUMBERS[name])
        yield
        self._native.plant(-1)

    def liveness(self, lifted: LiftedRepresentation) -> Liveness:
        """Return the liveness that this analysis finds."""
        isa = lifted.isa
        table = EffectTable(isa, lifted.wave_size, lifted.effect_table.vector_universe)
        wide = lifted.wave_size == 64
        table._native = self._native.EffectTable(*register_lists(isa), isa.register_is_half.tolist(), wide)
        kernel = replace(lifted, effect_table=table, columns=Columns(lifted.code))
        return Liveness(kernel, flow_of(kernel))


def _module() -> Any:
    """Return the compiled module."""
    paths = [*sorted((NATIVE / "lifting").rglob("*.[ch]*")), NATIVE / "mc" / "interrupts.h"]
    texts = {str(path.relative_to(NATIVE)): path.read_text() for path in paths}
    for name, fault in (FAULTS | IMPRECISE).items():
        file = f"lifting/{fault.file}"
        texts[file] = fault.planted(texts[file], NUMBERS[name])
    texts |= {"main.cpp": MAIN, "unit_numbers.h": registers.native_header()}
    compiler = "c++"

    def make(library: Path) -> None:
        for name, text in texts.items():
            (library.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (library.parent / name).write_text(text)
        folders = [library.parent, sysconfig.get_path("include"), pybind11.get_include()]
        includes = [f"-I{folder}" for folder in folders]
        flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-fvisibility=hidden"]
        run([compiler, *flags, *includes, str(library.parent / "main.cpp"), "-o", str(library)])

    path = kept(
        (texts, version(compiler), pybind11.__version__, sysconfig.get_config_var("SOABI")), make, f"{MODULE}.so"
    )
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)  # liveness calls nothing of `lifting/code`, which needs LLVM
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.setdlopenflags(before)
    return module
