"""Kernels patched for a run, and cached on disk for later runs.

Cached kernels are found by what tools request: tools instrument every kernel in every run, since they may record what
they inserted where. Only the work after that (compiling hooks, binding registers, layout) is skipped for the same hooks
at the same points of the same code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from luthier.cache.folder import cache_folder
from luthier.cache.provenance import PATCHES, Provenance, provenance_of
from luthier.cache.store import Store
from luthier.channels import describe
from luthier.emulator.running.start import DYNAMIC_STACK
from luthier.errors import LuthierError, ToolCodeError, ToolError
from luthier.extensions.entry_points import INTRINSICS, points_of
from luthier.module import Hook, LoadedModule
from luthier.objects import CodeObject, Kernel, load_object
from luthier.patch import KernelReport, RefusedError
from luthier.tool import TaskShare, ToolGroup
from luthier.tool.counts import Cell, KernelCounters
from luthier.tool.options import PatchOptions

if TYPE_CHECKING:
    from luthier.patch.output.companion import Companion, VariableBlock
    from luthier.tool.task import InstrumentationTask

MOST_ASKED = 4096
"""Bytes of stack beyond a kernel's fixed private memory that launches may request if hooks use memory above it."""
NOTHING_REQUESTED = "no tool requested a hook"
"""Reason that the original of an idle kernel runs."""
MOST_STACK = MOST_ASKED + DYNAMIC_STACK
"""Limit for the stack: virtual devices provide more than launches request."""
_ANY = (1 << 32) - 1


class Patched(Struct, frozen=True):
    """Result of patching a kernel."""

    companion: Companion | None
    """None if the original runs, for the given reason."""
    reason: str = ""
    report: KernelReport | None = None
    """Report of what tools requested and what was done; None if patching did not start."""
    kept: bool = False
    """Whether it was in the cache."""
    skipped: bool = False
    """Whether it was not selected."""
    idle: bool = False
    """Whether no tool requested anything, so there is nothing to instrument."""


def most_private(kernel: Kernel, patched: Patched) -> int:
    """Return the maximum private memory of a lane, in bytes, for instrumented launches of a kernel."""
    if not kernel.uses_dynamic_stack or patched.companion is None:
        return _ANY
    after = load_object(patched.companion.data).kernels[kernel.name]
    own = kernel.private_segment_fixed_size
    return own + MOST_ASKED if after.private_segment_fixed_size > own else _ANY


def most_group(kernel: Kernel, patched: Patched) -> int:
    """Return the maximum LDS of a work-group, in bytes, for instrumented launches of a kernel."""
    if patched.companion is None:
        return _ANY
    after = load_object(patched.companion.data).kernels[kernel.name]
    more = after.group_segment_fixed_size - kernel.group_segment_fixed_size
    return kernel.descriptor.target.lds_bytes - more if more else _ANY


def most_items(kernel: Kernel, patched: Patched) -> int:
    """Return the maximum number of work-items of a work-group for instrumented launches of a kernel.

    Registers and LDS of hooks suffice for the number of waves that its metadata allows.
    """
    report = patched.report
    if report is None or (not report.in_lds and report.vgprs[1] <= report.vgprs[0]):
        return _ANY
    return kernel.most_waves * kernel.wave_size


def patched_store() -> Store | None:
    """Return the store of patched kernels; None if there is no cache."""
    folder = cache_folder("patched")
    if folder is None:
        return None
    made_by = provenance_of(*PATCHES, __name__)
    return Store(folder / f"{made_by.digest}.sqlite", made_by.unchanged)


@functools.lru_cache(maxsize=256)
def digest_of(object: CodeObject) -> str:
    """Return the hexadecimal digest of an object, which identifies it in caches and results."""
    return hashlib.blake2b(object.data, digest_size=16).hexdigest()


class Asked(Protocol):
    """Protocol of an observer of tools' requests in kernels."""

    def asked(
        self, object: CodeObject, task: InstrumentationTask, shares: Sequence[TaskShare], report: KernelReport | None
    ) -> None:
        """Handle the requests of tools in a kernel.

        Args:
            shares: requests of each tool.
            report: result; None if the kernel could not be patched at all.
        """


class Patcher:
    """Instruments kernels with the tools of a run, each kernel of an object once. Thread-safe.

    Args:
        asked: is notified of the requests of tools.
        hoist: whether hooks that only count become counts; None: the default.
    """

    def __init__(self, tools: ToolGroup, asked: Asked | None = None, *, hoist: bool | None = None) -> None:
        self.tools = tools
        self._options = PatchOptions(hoist=hoist, solve_sums=True, most_stack=MOST_STACK)
        self._asked = asked
        self.modules_of: list[dict[int, LoadedModule]] = [{} for _ in tools.tools]
        """For each tool, the modules whose hooks it inserted or whose variables it counts into, by identity."""
        self.failures: list[str] = []
        """Errors in tools' own code."""
        self._store = patched_store()
        self._lock = threading.Lock()
        self._done: dict[tuple[str, str], Patched] = {}
        self._blocks: dict[int, VariableBlock] = {}

    @property
    def seen(self) -> int:
        """Return the number of kernels launched so far that are selected and of different code."""
        return len(self._done)

    def patch(self, object: CodeObject, kernel: str) -> Patched:
        """Return what to launch instead of a kernel."""
        key = digest_of(object), kernel
        with self._lock:
            patched = self._done.get(key)
            if patched is None:
                patched = self._done[key] = self._patch(object, kernel, key[0])
            return patched

    def _patch(self, object: CodeObject, kernel: str, digest: str) -> Patched:
        from luthier.lifting import lift  # not needed where nothing is launched
        from luthier.tool.task import InstrumentationTask

        if not self.tools.tools:
            return Patched(None, "there are no tools")
        try:
            task = InstrumentationTask(lift(object, kernel), self._options)
            shares = self.tools.instrument_each(task)
        except ToolCodeError as problem:
            self.failures.append(str(problem))
            return Patched(None, str(problem))
        except LuthierError as problem:
            return Patched(None, str(problem))
        if not (task.insertions or task.counts or task.edits):
            if task.left_out:
                return Patched(None, f"nothing could be instrumented: {task.left_out[0]}")
            return Patched(None, NOTHING_REQUESTED, idle=True)
        for modules, own in zip(self.modules_of, shares, strict=True):
            used = [task.insertions[number].hook.module for number in own.hooks]
            used += [cell.module for number in own.counts if (cell := task.counts[number].into) is not None]
            modules.update((id(module), module) for module in used)
        try:
            patched = self._look_up(object, task, digest)
        except RefusedError as problem:
            patched = Patched(None, str(problem), problem.report.kernels[0])
        except LuthierError as problem:
            patched = Patched(None, str(problem))
        if self._asked is not None:
            self._asked.asked(object, task, shares, patched.report)
        return patched

    def _look_up(self, object: CodeObject, task: InstrumentationTask, digest: str) -> Patched:
        makers = () if self._store is None else _makers(task)
        key = None if self._store is None or makers is None else _key(task, digest, makers)
        if self._store is not None and key is not None:
            kept = self._store.get([key]).get(key)
            if kept is not None:
                return self._read(kept, object, task)
        from luthier.patch.output.companion_code import patch_task  # not needed for kernels from the cache

        companion = patch_task(object, task, self.block_of)
        (report,) = companion.report.kernels
        # What the system interrupted may succeed next time.
        whole = all(refusal.kind != "unfinished" for refusal in report.refusals)
        if whole and self._store is not None and key is not None and all(one.unchanged() for one in makers or ()):
            self._store.put({key: _written(companion, task)})
        return Patched(companion, "", report)

    def _read(self, kept: bytes, object: CodeObject, task: InstrumentationTask) -> Patched:
        from luthier.patch.output.companion import Companion, cell_modules

        size = int.from_bytes(kept[:8], "little")
        head = json.loads(kept[8 : 8 + size])
        report = msgspec.convert(head["report"], KernelReport)
        modules = task.modules
        counters = None
        if head["counters"] is not None:
            counters = KernelCounters.of_json(task.lifted, head["counters"], modules)
            modules += cell_modules(object, counters)
        blocks = {block.symbol: block for block in map(self.block_of, modules)}
        used = tuple(blocks[symbol] for symbol in head["blocks"])
        companion = Companion.of(kept[8 + size :], report, used, counters)
        return Patched(companion, "", report, kept=True)

    def block_of(self, module: LoadedModule) -> VariableBlock:
        """Return the block of a module's variables, whose symbol is the same in every run."""
        from luthier.patch.output.companion import VariableBlock

        block = self._blocks.get(id(module))
        if block is None:
            if any(variable.storage.pointers for variable in module.variables.values()):
                problem = "the initial value of a variable contains an address, which `luthier run` does not support"
                raise ToolError(problem, object=module.name)
            for variable in module.variables.values():
                describe(variable.name, variable.storage.initial)  # check that a run can open its channels
            # Depends on the code only: cached kernels stay valid if only the source changes.
            block = self._blocks[id(module)] = VariableBlock.of(module, f"luthier.variables.{_digest(module)}")
        return block


# Cached kernels -------------------------------------------------------------------------------------------------------


def _digest(module: LoadedModule) -> str:
    """Return a digest of a module's variables and their initial values, the same in every run."""
    described = hashlib.blake2b(module.name.encode(), digest_size=8)
    for name, variable in module.variables.items():
        # Most variables are large and zero: zeros at their end need not be hashed, since the size is.
        storage, initial = variable.storage, variable.storage.initial.rstrip(b"\0")
        about = name, variable.size, storage.align, storage.problem, len(initial)
        described.update(repr(about).encode() + initial)
    return described.hexdigest()


def _written(companion: Companion, task: InstrumentationTask) -> bytes:
    (report,) = companion.report.kernels
    counters = companion.counters and companion.counters.to_json(task.modules)
    blocks = [block.symbol for block in companion.blocks]
    head = json.dumps({"report": msgspec.to_builtins(report), "blocks": blocks, "counters": counters}).encode()
    return len(head).to_bytes(8, "little") + head + companion.data


def _makers(task: InstrumentationTask) -> tuple[Provenance, ...] | None:
    """Return the provenance of intrinsics of other packages that hooks use; None if it is unknown."""
    if not points_of(INTRINSICS):
        return ()
    from luthier.payload.calls import intrinsics_called  # what compiles hooks takes long to import
    from luthier.payload.registry import makers_of

    target = task.lifted.object.target
    contents = (module.contents_for(target) for module in task.modules)
    sizes = [size for one in contents for size in (one, one.other) if size is not None]
    return makers_of(intrinsics_called(name for size in sizes for name in size.intrinsics))


def _key(task: InstrumentationTask, digest: str, makers: Sequence[Provenance]) -> bytes | None:
    """Return a cache key of what a patched kernel depends on besides Luthier; None if the task contains a value of
    unknown meaning."""
    fields = {name: value for name, value in vars(task).items() if name != "lifted" and not name.startswith("_")}
    try:
        asked = _stable(fields, {}, task)
    except TypeError:
        return None
    target = task.lifted.object.target
    made_by = [one.digest for one in makers]
    described = repr((made_by, digest, task.lifted.kernel.name, str(target), asked))
    return hashlib.sha256(described.encode()).digest()


def _module(module: LoadedModule, task: InstrumentationTask) -> str:
    return f"{module.name} {module.contents_for(task.lifted.object.target).digest}"


def _field_names(value: object) -> tuple[str, ...] | None:
    """Return the names of the fields of a record; None if it is not a record."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) else None


def _stable(value: Any, seen: dict[int, str], task: InstrumentationTask) -> str:
    """Return a text that two values share only if they mean the same, in any process.

    Raises:
        TypeError: the value is of an unknown kind.
    """
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum):
        return repr(value)
    if id(value) in seen:
        return seen[id(value)]
    names = _field_names(value)
    if isinstance(value, Hook):
        text = f"hook {value.symbol} {_module(value.module, task)}"
    elif isinstance(value, Cell):
        text = f"cell {value.variable} {value.index} {_module(value.module, task)}"
    elif isinstance(value, list | tuple):
        text = f"{type(value).__name__}({','.join(_stable(one, seen, task) for one in value)})"
    elif isinstance(value, Mapping):
        pairs = (f"{_stable(key, seen, task)}:{_stable(one, seen, task)}" for key, one in value.items())
        text = f"{{{','.join(pairs)}}}"
    elif names is not None:
        inside = [_stable(getattr(value, name), seen, task) for name in names]
        text = f"{type(value).__name__}({','.join(inside)})"
    else:
        raise TypeError(type(value).__name__)
    if names is not None:  # shared by many insertions, and kept alive by the task
        seen[id(value)] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return seen[id(value)]
    return text
