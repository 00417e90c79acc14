"""The tree of generations: who descends from whom, what is inherited, and what is not."""

from __future__ import annotations

import pytest
from luthier.arch.amdgcn import AMDGCN
from luthier.arch.generation import INHERITED, Generation
from luthier.arch.gfx9 import GFX9
from luthier.arch.gfx11 import GFX11
from luthier.arch.hazards import Hazard
from luthier.arch.parties import SALU, VALU, HazardRole, Party, RegisterSet
from luthier.arch.target import Target
from luthier.arch.targets import TARGETS, ProcessorTable, generations, target_named
from luthier.arch.waits import LimitField
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.operations import FAMILIES, operations_of
from luthier.errors import TargetError
from luthier.hazards.wait_states.model import hazard_model
from msgspec.structs import replace

PARENTS = {
    "AMDGCN": None,
    "GFX9": "AMDGCN",
    "GFX908": "GFX9",
    "GFX90A": "GFX908",
    "GFX940": "GFX90A",
    "GFX950": "GFX940",
    "GFX10": "AMDGCN",
    "GFX10_3": "GFX10",
    "GFX11": "GFX10_3",
    "GFX11_5": "GFX11",
    "GFX12": "GFX11",
    "GFX1250": "GFX12",
}


def test_parents() -> None:
    assert {name: one.parent and one.parent.generation for name, one in generations().items()} == PARENTS
    assert {target.generation for target in TARGETS.values()} == PARENTS.keys() - {"AMDGCN"}
    for target in TARGETS.values():
        assert target.lineage[1] is generations()[target.generation]
        assert target.lineage[-1] is AMDGCN
        assert target_named(target.widest).major == target.major


FACTS = [
    name
    for name, value in zip(Generation.__struct_fields__[1:], Generation.__struct_defaults__, strict=True)
    if value is INHERITED
]
EVERYTHING = {name: getattr(GFX9, name) for name in FACTS}


@pytest.mark.parametrize("fact", sorted(set(FACTS) - {"generation"}))
def test_a_fact_comes_from_the_nearest_that_sets_it_or_is_an_error(fact: str) -> None:
    """A value holds for all levels below unless one of them sets it, too; values that are never set have no default."""
    root = Generation(parent=None, **{name: value for name, value in EVERYTHING.items() if name != fact})
    with pytest.raises(TargetError, match=f"generation A neither sets nor inherits {fact}$"):
        Generation(parent=root, generation="A")
    given = Generation(parent=root, generation="A", **{fact: EVERYTHING[fact]})
    assert getattr(Generation(parent=given, generation="B"), fact) is EVERYTHING[fact]


def test_a_target_changes_facts_of_its_own() -> None:
    assert TARGETS["gfx1100"].vgpr_file != GFX11.vgpr_file == TARGETS["gfx1102"].vgpr_file
    assert TARGETS["gfx906"].supports_sramecc
    assert not GFX9.supports_sramecc


def child(parent: Generation, name: str = "NEW", **own: object) -> Target:
    return Target(parent=Generation(parent=parent, generation=name, **own), name="gfx1fff", mach=0xFE)  # type: ignore[arg-type]


def needed(target: Target) -> dict[str, object]:
    return {rule.hazard.name: rule.hazard.needed for rule in hazard_model(target, 64).rules}


def test_rows_of_other_branches_do_not_apply() -> None:
    """A sibling of a generation has nothing that begins there, and a child has all that does not end."""
    assert TARGETS["gfx1250"].hazards != TARGETS["gfx1201"].hazards
    twelve = generations()["GFX12"]
    assert child(twelve).hazards == twelve.hazards
    sibling = child(AMDGCN, **{name: getattr(twelve, name) for name in FACTS if name != "generation"})
    assert sibling.hazards == ()
    five = {row.name for row in generations()["GFX11_5"].hazards}
    assert "transcendental operation, VALU reads its result" in {row.name for row in GFX11.hazards} - five


def test_a_generation_ends_rows_of_its_parent() -> None:
    name = "WMMA writes registers, WMMA reads them as A or B"
    (old,) = (one for one in GFX11.hazards if one.name == name)
    changed = child(GFX11, hazards_ended=(name,), hazard_rows=(replace(old, needed=3),))
    assert needed(changed) == needed(TARGETS["gfx1100"]) | {name: 3}
    assert needed(child(GFX11, hazards_ended=(name,))).keys() == needed(TARGETS["gfx1100"]).keys() - {name}
    with pytest.raises(TargetError, match="generation NEW ends hazards that it does not inherit: nonsense"):
        child(GFX11, hazards_ended=("nonsense",))


def test_rows_end_at_descendants() -> None:
    for end in ("GFX90A", "NEW", "nowhere"):
        wrong = Hazard(name="a hazard", producer=VALU, consumer=SALU, needed=1, source="a test", until=(end,))
        with pytest.raises(TargetError, match=f"'a hazard' ends at {end}, which does not descend from it"):
            ProcessorTable([*TARGETS.values(), child(GFX11, hazard_rows=(wrong,))])


@pytest.mark.parametrize(
    "producer", [VALU.by(HazardRole("paints")), VALU.writes(RegisterSet("paints")), VALU.reads(RegisterSet("paint"))]
)
def test_roles_have_a_meaning(producer: Party) -> None:
    row = Hazard(name="a hazard", producer=producer, consumer=SALU, needed=1, source="a test")
    with pytest.raises(TargetError, match=f"has no function for the role '{producer.role.name}' of a hazard"):
        hazard_model(child(GFX11, hazard_rows=(row,)), 64)


def test_waits_speak_of_counters_that_there_are() -> None:
    with pytest.raises(TargetError, match="S_WAIT waits for nocnt, which is not a counter"):
        replace(GFX11.waits, fields={"S_WAIT": (LimitField("nocnt", ((0, 4),)),)})
    with pytest.raises(TargetError, match="brook is not a stream"):
        replace(GFX11.waits, releases={"S_BARRIER_WAIT": "brook"})


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"name": "gfx906", "mach": 0xFE}, "two processors called gfx906, of generation GFX9 and of generation GFX11"),
        ({"name": "gfx1fff", "mach": 0x2F}, "processor gfx906 and processor gfx1fff have the same EF_AMDGPU_MACH 0x2f"),
    ],
)
def test_processors_that_clash(new: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        ProcessorTable([*TARGETS.values(), Target(parent=GFX11, **new)])  # type: ignore[arg-type]


def test_generations_that_clash_or_are_elsewhere() -> None:
    with pytest.raises(TargetError, match="redefines generation GFX12, which"):
        ProcessorTable([*TARGETS.values(), child(GFX11, "GFX12")])
    with pytest.raises(TargetError, match="redefines generation GFX11, which"):
        ProcessorTable([Target(parent=Generation(parent=GFX11), name="gfx1fff", mach=0xFE)])
    with pytest.raises(TargetError, match="descends from generation GFX9, not from generation AMDGCN"):
        ProcessorTable([child(Generation(parent=None, **EVERYTHING))])


def test_operations_are_inherited_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations belong to a branch until they end; the nearest definition counts. GFX9 and GFX10 are siblings."""
    table = OperationTable()
    for text, since, until in (
        ("v_all", (), ()),
        ("v_nine", (9,), ()),
        ("v_ten", (10,), ()),
        ("v_ten_only", (10,), (11,)),
        ("v_changed", (10,), ()),
        ("v_changed", (12,), ()),
    ):
        table.lane(text, "u32 -> u32", since=since, until=until)(lambda b, x: x)
    monkeypatch.setattr("luthier.emulator.operations.FAMILIES", (table_of(table),))
    operations_of.cache_clear()
    try:
        operations = {major: operations_of(major) for major in (9, 10, 11, 12)}
    finally:
        operations_of.cache_clear()
    assert [sorted(one) for one in operations.values()] == [
        ["v_all", "v_nine"],
        ["v_all", "v_changed", "v_ten", "v_ten_only"],
        ["v_all", "v_changed", "v_ten"],
        ["v_all", "v_changed", "v_ten"],
    ]
    old, new = (one for one in table if "v_changed" in one.names)
    assert [operations[major]["v_changed"] for major in (10, 11, 12)] == [old, old, new]
    assert len(FAMILIES) > 20


def table_of(table: OperationTable) -> object:
    """A family module with these operations."""
    return type("family", (), {"operations": table})
