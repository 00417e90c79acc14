"""Plans that describe to the native executor how to start a kernel that is in a program's memory."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.ir.variant import FOLLOWED
from luthier.emulator.running.plan import beyond, kernel_plan
from luthier.emulator.running.worker import get_field, put_field
from luthier.errors import DeviceError, LuthierError, ObjectError
from luthier.isa import Isa
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, Kernel, KernelDescriptor
from luthier.objects.loaded_image import file_of_image
from luthier.objects.names import is_selected, spellings
from luthier.objects.origins import teller
from luthier.run.selection import is_of_runtime
from luthier.run.space import SharedSpace, SpacePart

if TYPE_CHECKING:
    from luthier.run.watching import Watching

ReadMemory = Callable[[int, int], bytes]
"""Reads bytes of a program's memory: address, size."""
MEMORY = "memory"
"""Name of an object without a file."""


class OtherCode(Struct, frozen=True):
    """Code of another object, appended to code that calls it."""

    object: CodeObject
    records: range
    distance: int
    """Offset from its virtual addresses to the addresses of the calling code."""


class PlannedCode(Struct):
    """Decoded code in shared memory."""

    number: int
    object: CodeObject | None
    """Code object of the code, at its virtual addresses; None if it is unknown, or the code belongs to several
    objects."""
    code: DecodedCode
    copy: NDArray[np.uint8]
    """The decoded bytes, from the code's base."""
    part: SpacePart
    """The shared memory that holds all of this."""
    of_process: bool
    """Whether its addresses are those of the processes that use it; then it is removed with the last of them."""
    users: int = 0
    """Number of these processes."""
    other_code: dict[tuple[bytes, int], OtherCode] = field(default_factory=dict)
    """Code of other objects that it calls, by digest and distance."""
    watching: Watching | None = None
    """Facts for the checks of waits and hazards, if they are enabled."""


class KernelPlan(Struct):
    """Plan of one kernel."""

    number: int
    kernel: Kernel
    object: str
    """Name of the kernel's object, for reports."""
    code: PlannedCode
    fields: NDArray[np.uint8]
    """`layout.PLAN`."""
    roots: set[int]
    """Records from which all executed code is reachable."""
    of_program: bool
    """Whether the program launches it, not its runtime."""
    plain: NDArray[np.uint8] | None = None
    """`layout.PLAN` of launches that no check observes, if these run otherwise."""

    @property
    def address(self) -> int:
        """Return the address of the plan in shared memory, in this process."""
        return int(self.fields.ctypes.data)

    def put(self, name: str, value: int) -> None:
        """Set a field for all launches."""
        for fields in (self.fields, self.plain):
            if fields is not None:
                put_field(fields, layout.PLAN, name, value)


class Planner:
    """Makes plans in shared memory, and binds instructions when they are reached. Thread-safe.

    Args:
        observed: kernels report their memory accesses.
        ordered: as for `RegisterUses`, where kernels are observed.
        waits: kernels are checked for missing waits.
        hazards: kernels are checked for missing wait states.
        floats: exceptional floats that kernels report, as bits: `layout.FLOAT_NAN` etc.; `FOLLOWED`.
        undefined: sources of undefined values that kernels track, as bits: `layout.LANE_VALUES` etc.
        kernels: patterns of the kernels that are observed or checked, for `luthier.objects.names.is_selected`.
    """

    def __init__(
        self,
        space: SharedSpace,
        *,
        observed: bool = False,
        ordered: bool = True,
        waits: bool = False,
        hazards: bool = False,
        floats: int = 0,
        undefined: int = 0,
        kernels: Sequence[str] = (),
    ) -> None:
        self._space, self._kernels = space, kernels
        self._observed, self._waits, self._hazards, self._floats = observed, waits, hazards, floats
        self._undefined, self._ordered = undefined, ordered
        self._lock = threading.RLock()
        self._objects: dict[tuple[TargetId, bytes], CodeObject] = {}
        self._codes: dict[Any, PlannedCode] = {}
        self._plans: dict[Any, KernelPlan] = {}
        self.plans: dict[int, KernelPlan] = {}
        """By number; numbers are never reused."""
        self.codes: dict[int, PlannedCode] = {}
        """By number."""
        self._numbers = itertools.count()

    @contextmanager
    def holding(self, held: set[int]) -> Iterator[Callable[[KernelPlan], KernelPlan]]:
        """Keep plans from being forgotten before a process has received them.

        Args:
            held: receives the numbers of codes that the process keeps, until it is passed to `let_go`.
        """

        def hold(plan: KernelPlan) -> KernelPlan:
            if plan.code.of_process and plan.code.number not in held:
                held.add(plan.code.number)
                plan.code.users += 1
            return plan

        with self._lock:
            yield hold

    def let_go(self, held: set[int]) -> None:
        """Forget the codes that no process uses after one has ended."""
        with self._lock:
            for number in held:
                self.codes[number].users -= 1
            gone = {number for number in held if self.codes[number].users == 0}
            if gone:
                objects = {id(self.codes.pop(number).object) for number in gone}
                self.plans = {number: plan for number, plan in self.plans.items() if plan.code.number not in gone}
                self._plans = {key: plan for key, plan in self._plans.items() if plan.code.number not in gone}
                self._codes = {key: code for key, code in self._codes.items() if code.number not in gone}
                used = {id(code.object) for code in self.codes.values()}
                self._objects = {
                    key: one for key, one in self._objects.items() if id(one) in used or id(one) not in objects
                }

    def plan_file(
        self,
        target: TargetId,
        address: int,
        load_address: int,
        uri: str,
        contents: bytes,
        read: ReadMemory | None = None,
    ) -> KernelPlan | None:
        """Return the plan of a kernel in a code object that a program has loaded; None if it has no such kernel.

        It has none, either, if it is damaged: a program may reuse the memory of an object that it has loaded.
        The kernel's descriptor is at `address` of the program's memory, and the object at its virtual addresses plus
        `load_address`.

        Args:
            uri: ROCr URI of the code object.
            contents: the code object.
            read: reads the program's memory, for code with addresses of symbols that only the program knows.

        Raises:
            LuthierError: the kernel cannot be executed.
        """
        with self._lock:
            digest = hashlib.blake2b(contents).digest()
            virtual = address - load_address
            known = self._plans.get((target, digest, virtual))
            if known is not None:
                return known
            object = self._object(target, digest, contents, uri)
            if object is None:
                return None
            try:
                ranges = _text(object, load_address, read)
            except ObjectError:
                return None
            # Code with relocations differs by load address.
            written = b"".join(data for _, data in ranges) if object.text_relocations else b""
            place = (load_address, hashlib.blake2b(written).digest()) if written else ()
            if place and (known := self._plans.get((target, digest, virtual, *place))) is not None:
                return known
            kernel = next((k for k in object.kernels.values() if k.descriptor_address == virtual), None)
            if kernel is None:
                return None
            key = (target, digest, kernel.wave_size, *place)
            of_process = bool(place) or uri == MEMORY  # it may contain addresses, too
            code = self._code(key, target, kernel.wave_size, ranges, object, of_process=of_process)
            code.code.origin = teller(object)
            plan = self._plans[target, digest, virtual, *place] = self._make(target, kernel, object.name, code)
            return plan

    def plan_memory(self, target: TargetId, address: int, descriptor: bytes, start: int, contents: bytes) -> KernelPlan:
        """Return the plan of a kernel without a file, from the memory around it, which begins at `start`.

        Raises:
            LuthierError: there is no kernel, or it cannot be executed.
        """
        image = file_of_image(contents)
        if image is not None:
            plan = self.plan_file(target, address, start, MEMORY, image)
            if plan is not None:
                return plan
        # ROCr's own kernels begin with an amd_kernel_code_t, which has other fields in place of a descriptor's sizes.
        # The sizes come with the packet.
        known = bytes(16) + descriptor[16:24] + bytes(20) + descriptor[44:60] + bytes(4)
        decoded = KernelDescriptor.decode(known, target.target)
        entry = address + decoded.kernel_code_entry_byte_offset
        if not start <= entry < start + len(contents):
            raise ObjectError("the entry of a kernel lies outside the memory of its descriptor", offset=address)
        before, after = contents[: entry - start], contents[entry - start :]
        with self._lock:
            key = (target, decoded.wave_size, start, entry, hashlib.blake2b(contents).digest())
            known_plan = self._plans.get((key, address))
            if known_plan is not None:
                return known_plan
            ranges = [part for part in ((start, before), (entry, after)) if part[1]]
            code = self._code(key, target, decoded.wave_size, ranges)
            kernel = _nameless(f"kernel at {address:#x}", address, decoded)
            plan = self._plans[key, address] = self._make(target, kernel, MEMORY, code)
            return plan

    def plan_code(self, target: TargetId, kernel: Kernel, object: str, code: list[tuple[int, bytes]]) -> KernelPlan:
        """Return the plan of a kernel at its address in a program's memory, with all code that it can reach.

        Raises:
            LuthierError: the kernel cannot be executed.
        """
        with self._lock:
            digests = tuple((start, hashlib.blake2b(data).digest()) for start, data in code)
            key = (target, kernel.wave_size, digests)
            plan = self._plans.get((key, kernel.descriptor_address))
            if plan is None:
                planned = self._code(key, target, kernel.wave_size, code)
                plan = self._plans[key, kernel.descriptor_address] = self._make(target, kernel, object, planned)
            return plan

    def bind(self, number: int, key: int, record: int) -> None:
        """Bind the instructions that a kernel, by the number of its plan, reaches from a record in the table `key`.

        Raises:
            DeviceError: there is no such plan, table or record.
        """
        with self._lock:
            plan = self.plans.get(number)
            if plan is None or key >= layout.TABLES or record >= plan.code.code.count:
                raise DeviceError("the requested code was never planned")
            plan.code.code.ensure(key, record)
            if record not in plan.code.code.reach(*plan.roots):  # it is if a wave changes its table there
                plan.roots.add(record)
                self._look_at(plan)

    def find_outside(
        self, target: TargetId, number: int, code: int, address: int, load_address: int, uri: str, contents: bytes
    ) -> int | None:
        """Return the record at which a kernel continues at an address in another object; None if there is none.

        Args:
            number: number of the kernel's plan.
            code: address of the first byte of the kernel's code.
            load_address: of the other object, as for `plan_file`.

        Raises:
            DeviceError: there is no such plan.
        """
        with self._lock:
            if number not in self.plans:
                raise DeviceError("the requested code was never planned")
            planned = self.plans[number].code
            delta = code - planned.code.base
            digest = hashlib.blake2b(contents).digest()
            other = planned.other_code.get((digest, load_address - delta))
            if other is None:
                object = self._object(target, digest, contents, uri)
                if object is None:
                    return None
                distance, first = load_address - delta, planned.code.count
                if planned.watching is not None:
                    planned.watching.check_room(sum(len(text) for _, text in _text(object, load_address)) // 4)
                planned.code.extend([(start + distance, text) for start, text in _text(object, load_address)])
                records = range(first, planned.code.count)
                other = planned.other_code[digest, distance] = OtherCode(object, records, distance)
                # Written after the records, since a process may read concurrently.
                for plan in self.plans.values():
                    if plan.code is planned:
                        plan.put("record_count", planned.code.count + 1)
                        if get_field(plan.fields, layout.PLAN, "uses"):
                            put_field(plan.fields, layout.PLAN, "uses", self._uses(planned))
            record = planned.code.record_at(address - delta)
            return record if record is not None and record in other.records else None

    # Making ---------------------------------------------------------------------------------------------------------

    def _object(self, target: TargetId, digest: bytes, data: bytes, uri: str) -> CodeObject | None:
        """Return a code object for the target; None if the data is not one."""
        object = self._objects.get((target, digest))
        if object is None:
            try:
                object = CodeObject(data, uri.partition("#")[0])
            except LuthierError:
                return None
            if not target.accepts(object.target):
                return None
            self._objects[target, digest] = object
        return object

    def _code(
        self,
        key: Any,
        target: TargetId,
        wave_size: int,
        ranges: list[tuple[int, bytes]],
        object: CodeObject | None = None,
        *,
        of_process: bool = True,
    ) -> PlannedCode:
        known = self._codes.get(key)
        if known is not None:
            return known
        part = SpacePart(self._space)
        code = DecodedCode(Isa.of(target, wave_size), ranges, part.zeros)
        copy = part.bytes(code.size)
        for start, data in ranges:
            copy[start - code.base :][: len(data)] = np.frombuffer(data, np.uint8)
        number = next(self._numbers)
        planned = self._codes[key] = self.codes[number] = PlannedCode(number, object, code, copy, part, of_process)
        return planned

    def _make(self, target: TargetId, kernel: Kernel, object: str, planned: PlannedCode) -> KernelPlan:
        code = planned.code
        plain = {"stepping": 0, **kernel_plan(kernel, target.target, code)}
        of_program = (planned.object is not None or object != MEMORY) and not is_of_runtime(kernel.name)
        entry, fields = plain["entry"] // layout.RECORD.size, dict(plain)
        if of_program and planned.object is not None and is_selected(kernel.name, self._kernels):
            fields |= self._checked(planned, kernel, plain)
        code.ensure(fields["key"], entry)
        number, bytes = next(self._numbers), planned.part.bytes(layout.PLAN.size)
        plan = KernelPlan(number, kernel, object, planned, bytes, {entry}, of_program)
        if fields != plain:
            plan.plain = planned.part.bytes(layout.PLAN.size)
            fields["plain"] = plan.plain.ctypes.data
            for name, value in plain.items():
                put_field(plan.plain, layout.PLAN, name, value)
        for name, value in fields.items():
            put_field(plan.fields, layout.PLAN, name, value)
        text = np.frombuffer(spellings(kernel.name)[-1].encode() + b"\0", np.uint8)
        shown = planned.part.bytes(len(text))
        shown[:] = text
        common = {"code": planned.number, "kernel": plan.number, "code_copy": planned.copy.ctypes.data}
        for name, value in {**common, "name": shown.ctypes.data, "of_program": int(of_program)}.items():
            plan.put(name, value)
        self._look_at(plan)
        self.plans[plan.number] = plan
        return plan

    def _checked(self, planned: PlannedCode, kernel: Kernel, plain: Mapping[str, int]) -> dict[str, int]:
        """Return the fields in which the plan of a checked kernel differs from that of a plain one."""
        assert planned.object is not None
        fields: dict[str, int] = {}
        planned.code.floats, planned.code.undefined = self._floats, self._undefined
        if self._observed:
            fields |= {"key": plain["key"] | layout.OBSERVED, "stepping": layout.OBSERVED}
        if self._observed or self._undefined & layout.LANE_VALUES or self._floats & FOLLOWED:
            fields["uses"] = self._uses(planned)
        if self._floats or self._undefined:
            before = {**plain, **fields}
            fields |= {name: before[name] | layout.WATCHED_VALUES for name in ("key", "stepping")}
            fields["undefined"] = self._undefined
            if self._undefined == layout.UNWRITTEN_VALUES and not self._floats:  # floats need each operand's bits
                fields |= self._early(planned, kernel, before | fields)
        if self._waits or self._hazards:
            fields |= self._watch(planned, planned.object.target)
        return fields

    def _early(self, planned: PlannedCode, kernel: Kernel, fields: Mapping[str, int]) -> dict[str, int]:
        """Return the plan's fields for the registers that a kernel may read before it writes them."""
        from luthier.emulator.inspection.early import early_registers, plan_fields  # few runs need it

        assert planned.object is not None
        early = early_registers(planned.object, kernel, fields["given_sgprs"])
        kept = planned.part.zeros(max(1, len(early or ())), np.uint32)
        return plan_fields(early, kept, fields)

    def _uses(self, planned: PlannedCode) -> int:
        """Return the address of the uses of a kernel's code."""
        from luthier.emulator.inspection.uses import watched_uses  # few runs need it

        uses = watched_uses(planned.code, planned.part.zeros, ordered=self._ordered)
        uses.fill(())  # code may have been added
        return int(uses.table.ctypes.data)

    def _watch(self, planned: PlannedCode, target: TargetId) -> dict[str, int]:
        """Return the plan's fields for a kernel that is checked for waits and hazards."""
        from luthier.run.watching import Watching  # few runs need it

        if planned.watching is None:
            planned.watching = Watching(planned.code, target, planned.part, waits=self._waits, hazards=self._hazards)
        return {"watch": planned.watching.address}

    def _look_at(self, plan: KernelPlan) -> None:
        """Find the reachable code that must stay unchanged, and reachable records that must not be executed."""
        code = plan.code.code
        reached = code.reach(*plan.roots)
        # Calls into other objects are looked up again in each launch.
        spans = [(begin, end) for begin, end in code.spans(reached) if 0 <= begin - code.base < code.size]
        stretches = [(begin - code.base, end - begin) for begin, end in spans]
        checks = plan.code.part.bytes(max(len(stretches), 1) * layout.CHECK.size)
        for index, (offset, size) in enumerate(stretches):
            put_field(checks, layout.CHECK, "offset", offset, index * layout.CHECK.size)
            put_field(checks, layout.CHECK, "size", size, index * layout.CHECK.size)
        mask = np.zeros(code.count, np.bool_)
        mask[reached] = True
        refused = np.zeros(code.count, np.bool_)
        for _, excess, _ in beyond(plan.kernel, code, mask):
            refused[excess] = True
        records = np.flatnonzero(refused).astype(np.uint32)  # `np.unique` imports masked arrays, for 15 ms
        shared = plan.code.part.zeros(max(len(records), 1), np.uint32)
        shared[: len(records)] = records
        # A process may read concurrently: a count must never exceed its list.
        for name, value in (
            *(("check_count", 0), ("checks", checks.ctypes.data), ("check_count", len(stretches))),
            *(("beyond_count", 0), ("beyond", shared.ctypes.data), ("beyond_count", len(records))),
        ):
            plan.put(name, value)


def _text(object: CodeObject, load_address: int, read: ReadMemory | None = None) -> list[tuple[int, bytes]]:
    """Return the code of a loaded object, by its virtual addresses."""
    if read is not None and any(one.definition is None for one in object.text_relocations):
        return [(start, read(start + load_address, size)) for start, size in object.text_ranges]

    def address_of(name: str) -> int | None:
        symbol = object.symbol(name)
        return None if symbol is None or not symbol.defined else symbol.address + load_address

    return object.text_as_loaded(address_of)


def _nameless(name: str, address: int, descriptor: KernelDescriptor) -> Kernel:
    """Return a kernel that is known by its descriptor only."""
    return Kernel(
        name,
        name,
        descriptor,
        address,
        code_size=0,
        metadata={},
        arguments=(),
        kernarg_size=0,
        kernarg_align=16,
        group_segment_fixed_size=0,
        private_segment_fixed_size=0,
        wave_size=descriptor.wave_size,
        vgpr_count=descriptor.vgprs,
        agpr_count=descriptor.agprs,
        sgpr_count=descriptor.sgprs,
        max_flat_workgroup_size=0,
    )
