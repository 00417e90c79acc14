"""What a row of the table of hazards says, and how rows are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from luthier.isa.hazard_parties import MAY_PLAY, ROLES, Role
from luthier.isa.opcodes import Opcode
from luthier.isa.targets import Target


class Party(NamedTuple):
    """One of those who make a hazard."""

    kind: str
    """Of instructions: a key of `KINDS`."""
    role: str = ""
    """Which of their registers: a key of `ROLES`."""

    def may_play(self, opcode: Opcode) -> bool:
        """Whether instructions of this opcode, if they are of the kind, may have such registers."""
        may_play = MAY_PLAY.get(self.role)
        return may_play is None or may_play(opcode)

    @property
    def units(self) -> Role:
        """Gives the registers of an instruction; none: it is no such party."""
        return ROLES[self.role]


Relation = Literal["overlap", "same", "partly"]
"""Of the registers of both: some are common; all are; some, but not all."""
Clock = Literal["states", "vector instructions"]


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """A row of the table."""

    name: str
    """In words, also for findings."""
    producer: Party | None
    """None: the consumer is wrong by itself."""
    consumer: Party
    needed: int | Mapping[int, int] | None
    """How many must be between them; by the producer's passes (`passes`); None: one of `cleared_by`."""
    where: frozenset[str]
    """Generations, and processors that are told apart."""
    source: str
    clock: Clock = "states"
    relation: Relation = "overlap"
    middle: Party | None = None
    """What must come between them, in the same registers, so that there is a hazard."""
    cleared_by: tuple[Party, ...] = ()
    """Instructions between them behind which there is no hazard."""
    clears_all: bool = True
    """They clear what still waits for the middle, too."""
    second: Party | None = None
    """Another producer, behind the middle: the consumer must meet both, by different sources, and be far from it."""
    second_within: int = 0
    """It counts if at most so many are between both producers."""
    disarmed_by: tuple[Party, ...] = ()
    """Behind them there is none for their registers, until another middle."""
    forgotten_by: tuple[Party, ...] = ()
    """Behind them their registers no longer wait for the middle."""
    tags: Literal["any", "same", "other"] = "any"
    """Whether producer and consumer must have the same tag (`HazardModel.tag`: passes, else the opcode), or another."""
    transcendental: int | None = None
    """So many transcendental instructions between them are enough, too."""
    at_most: str = ""
    """Immediate of the consumer: needed are not more than this."""
    wave_size: int | None = None
    """Only in waves of so many lanes."""
    xnack: bool = False
    """Only where memory instructions may be started anew."""
    remedy: str = ""
    """What stands for wait states, in words, if they do not help."""

    @cached_property
    def in_registers(self) -> bool:
        """Whether producer and consumer meet in registers; else the one is enough for the other."""
        return self.producer is not None and bool(self.producer.role) and bool(self.consumer.role)

    @cached_property
    def middle_is_event(self) -> bool:
        """Whether the middle counts for all registers of a producer, not for those that it shares."""
        return self.middle is not None and (not self.middle.role or self.second is not None)

    def parties(self, name: str) -> tuple[Party, ...]:
        """Those that a field names, one of `PARTS`."""
        said: Party | tuple[Party, ...] | None = getattr(self, name)
        if said is None:
            return ()
        return (said,) if isinstance(said, Party) else said

    def most(self) -> int:
        """The largest number needed; 0 where numbers do not help."""
        if self.needed is None:
            return 0
        return self.needed if isinstance(self.needed, int) else max(self.needed.values())

    def is_in(self, target: Target, wave_size: int, xnack: bool = True) -> bool:
        """Whether a processor has it."""
        return (
            (target.generation in self.where or target.name in self.where)
            and f"not {target.name}" not in self.where
            and self.wave_size in (None, wave_size)
            and (xnack or not self.xnack)
        )


_IN_ORDER = ("result", "matrix C")
MATRIX_KINDS = ("MFMA", "MFMA, no DGEMM", "XDL", "SGEMM", "DGEMM", "DGEMM 4x4", "DGEMM 16x16")
"""Matrix instructions write, and read C, in order: behind the younger one, the older one has done it."""


def row(
    name: str,
    producer: tuple[str, str] | str | None,
    consumer: tuple[str, str] | str,
    needed: int | Mapping[int, int] | None,
    where: frozenset[str],
    source: str,
    **more: object,
) -> Hazard:
    """A row, with parties as (kind, role) or a kind alone; `more` are other fields of `Hazard`."""

    def party(said: tuple[str, str] | str) -> Party:
        return Party(said) if isinstance(said, str) else Party(*said)

    made = None if producer is None else party(producer)
    lists = ("cleared_by", "disarmed_by", "forgotten_by")
    options: dict[str, object] = {**dict.fromkeys(("middle", "second")), **dict.fromkeys(lists, ()), **more}
    if made is not None and made.role in _IN_ORDER and made.kind in MATRIX_KINDS:
        options["disarmed_by"] = (("MFMA", made.role),)
    for name_of_party in ("middle", "second"):
        if options[name_of_party] is not None:
            options[name_of_party] = party(options[name_of_party])  # type: ignore[arg-type]
    for name_of_list in lists:
        options[name_of_list] = tuple(party(one) for one in options[name_of_list])  # type: ignore[attr-defined]
    return Hazard(
        name=name,
        producer=made,
        consumer=party(consumer),
        needed=needed,
        where=where,
        source=source,
        **options,  # type: ignore[arg-type]
    )
