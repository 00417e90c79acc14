"""Thread traces that tinygrad's repository has of gfx1100, gfx1201 and gfx950 GPUs: extra/sqtt/examples (MIT licence).

A capture is a pickle of events. An unpickler reads it that makes an inert record of every global, so that nothing in
it runs.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from luthier.report.sqtt import WORDS, ThreadTrace, WaveTrace, token_kinds

FOLDER = Path("extra/sqtt/examples")


class Inert:
    """A record in the place of any object of a pickle."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments, self.state = (*arguments, *((named,) if named else ())), None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, value: Any) -> None:
        """Take an element, as a list does."""
        self.arguments += (value,)

    def extend(self, values: Sequence[Any]) -> None:
        """Take elements, as a list does."""
        self.arguments += tuple(values)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.arguments += ((key, value),)


class InertUnpickler(pickle.Unpickler):
    """Makes a class of inert records for every global."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class named like the global."""
        if (module, name) in (("builtins", "set"), ("builtins", "frozenset")):
            return frozenset
        return type(name, (Inert,), {})

    def persistent_load(self, identifier: Any) -> Any:
        """Return what names an object that is not in the pickle."""
        return identifier


@dataclass
class CapturedKernel:
    """A kernel that a GPU ran while it was traced."""

    capture: str
    target: str
    name: str
    elf: bytes
    traces: list[ThreadTrace] = field(default_factory=list)
    """One of each shader engine."""
    traced: list[WaveTrace] = field(default_factory=list)
    """Waves whose instructions were traced."""
    counters: dict[str, int] = field(default_factory=dict)


def captured_kernels(checkout: Path) -> Iterator[CapturedKernel]:
    """Yield the kernels of all captures in a checkout of tinygrad."""
    for path in sorted((checkout / FOLDER).glob("*/*.pkl")):
        with path.open("rb") as file:
            events = InertUnpickler(file).load()
        folder = path.parent.name
        target = {"gfx1200": "gfx1201"}.get(folder, folder)  # the objects in these captures are of gfx1201
        kernels: dict[Any, CapturedKernel] = {}
        for event in events:
            state, kind = event.state, type(event).__name__
            if kind == "ProfileProgramEvent":
                kernels[state["tag"]] = CapturedKernel(f"{folder}/{path.stem}", target, state["name"], state["lib"])
            elif kind == "ProfileSQTTEvent" and state["kern"] in kernels:
                trace = ThreadTrace(state["blob"], f"{folder}/{path.stem}")
                kernels[state["kern"]].traces.append(trace)
                if state["itrace"]:
                    kernels[state["kern"]].traced += trace.waves()
            elif kind == "ProfilePMCEvent" and state["kern"] in kernels:
                schedule = [counter.state or counter.arguments for counter in state["sched"]]
                kernels[state["kern"]].counters = _sums(schedule, state["blob"])
        yield from kernels.values()


def _sums(schedule: Sequence[Any], blob: bytes) -> dict[str, int]:
    """Return counters, summed over the instances that a schedule lists."""
    names = ("name", "block", "xcc", "inst", "se", "sa", "wgp")
    values, at, sums = memoryview(blob).cast("Q"), 0, {}
    for entry in schedule:
        part = entry if isinstance(entry, dict) else dict(zip(names, entry, strict=False))
        count = part["xcc"] * part["inst"] * part["se"] * part["sa"] * part["wgp"]
        sums[part["name"]] = sum(values[at : at + count])
        at += count
    return sums


def theirs(trace: ThreadTrace) -> Iterator[tuple[str, int, int]]:
    """Yield name, value and time of each token as tinygrad decodes them."""
    from tinygrad.renderer.amd import sqtt

    packets = sqtt.decode(trace.data)
    if trace.layout == WORDS:
        next(packets)  # software's header, which is read as a token
    for packet in packets:
        name = type(packet).__name__.removesuffix("_RDNA4")
        kind = token_kinds(trace.layout)[_NAMES.get(name, name.removeprefix("CDNA_"))]
        yield kind.name, packet._raw & ((1 << kind.bits) - 1), packet._time


_NAMES = {
    "VALUINST": "VALU",
    "VMEMEXEC": "MEMORY_EXEC",
    "ALUEXEC": "ALU_EXEC",
    "IMMEDIATE": "IMMEDIATE_ONE",
    "IMMEDIATE_MASK": "IMMEDIATE",
    "WAVERDY": "WAVE_READY",
    "TS_DELTA_S8_W3": "NEW_PC",
    "WAVESTART": "WAVE_START",
    "TS_DELTA_S5_W2": "WAVE_START_LONG",
    "WAVEALLOC": "WAVE_ALLOC",
    "WAVEEND": "WAVE_END",
    "TS_DELTA_S5_W3": "SHADER_DATA",
    "PERF": "SHADER_DATA_SHORT",
    "UTILCTR": "UTIL_COUNTER",
    "TS_DELTA_SHORT": "TIME",
    "TS_WAVE_STATE": "MISC",
    "EVENT_BIG": "EVENT_SYNC",
    "SNAPSHOT": "REG_INIT",
    "TS_DELTA_OR_MARK": "TIMESTAMP",
    "LAYOUT_HEADER": "HEADER",
    "CDNA_WAVESTART": "WAVE_START",
    "CDNA_WAVEALLOC": "WAVE_ALLOC",
    "CDNA_WAVEEND": "WAVE_END",
    "CDNA_INST_PC": "NEW_PC",
    "CDNA_USERDATA": "SHADER_DATA",
    "CDNA_PERF": "PERF",
    "CDNA_REG_CS_PRIV": "REG_CS_PRIVATE",
}
"""Kinds of tokens by tinygrad's names, where these differ; it does not know what some of RDNA's are."""


def loadable(kernel: CapturedKernel, arguments: int, block: int) -> str:
    """Return assembly of the same code and descriptor; tinygrad's handwritten objects have no program headers."""
    sections = _sections(kernel.elf)
    descriptor, code = sections[".rodata"], sections[".text"]
    (lds,) = struct.unpack_from("<I", descriptor, 0)
    resources1, resources2 = struct.unpack_from("<II", descriptor, 48)
    words = "\n".join(f".long {word:#010x}" for (word,) in struct.iter_unpack("<I", code))
    vgprs = ((resources1 & 63) + 1) * 8
    pointers = "\n".join(
        f"      - {{.address_space: global, .offset: {8 * number}, .size: 8, .value_kind: global_buffer}}"
        for number in range(arguments)
    )
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--{kernel.target}"
.text
.globl {kernel.name}
.p2align 8
.type {kernel.name},@function
{kernel.name}:
{words}
.size {kernel.name}, .-{kernel.name}
.rodata
.p2align 6
.amdhsa_kernel {kernel.name}
.amdhsa_group_segment_fixed_size {lds}
.amdhsa_user_sgpr_count 2
.amdhsa_user_sgpr_kernarg_segment_ptr 1
.amdhsa_kernarg_size {8 * arguments}
.amdhsa_next_free_vgpr {vgprs}
.amdhsa_next_free_sgpr 100
.amdhsa_system_sgpr_workgroup_id_x {resources2 >> 7 & 1}
.amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {kernel.name}
    .symbol: {kernel.name}.kd
    .kernarg_segment_size: {8 * arguments}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 100
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: {block}
    .args:
{pointers}
...
.end_amdgpu_metadata
"""


def _sections(elf: bytes) -> dict[str, bytes]:
    """Return the contents of an ELF file's sections by name."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + 64 * number) for number in range(count)]
    strings = headers[names][4]
    contents = {}
    for header in headers:
        name = elf[strings + header[0] : elf.index(b"\0", strings + header[0])].decode()
        contents[name] = elf[header[4] : header[4] + header[5]]
    return contents
