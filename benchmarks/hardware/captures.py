"""Thread traces that tinygrad's repository has of gfx1100, gfx1201 and gfx950 GPUs: extra/sqtt/examples (MIT licence).

A capture is a pickle of events. An unpickler reads it that makes an inert record of every global, so that nothing in
it runs. Tokens are decoded by tinygrad itself, a decoder that knows nothing of Luthier.
"""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
class TracedWave:
    """One wave of the traced SIMD, with the classes of its instructions in order."""

    tokens: list[str] = field(default_factory=list)


@dataclass
class CapturedKernel:
    """A kernel that a GPU ran while it was traced."""

    capture: str
    target: str
    name: str
    elf: bytes
    waves: int = 0
    """Waves that began, over all shader engines."""
    traced: list[TracedWave] = field(default_factory=list)
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
                _add_trace(kernels[state["kern"]], state["blob"], bool(state["itrace"]))
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


def _add_trace(kernel: CapturedKernel, blob: bytes, has_instructions: bool) -> None:
    """Count the waves of a trace, and add those whose instructions were traced: of compute unit 0 and one SIMD."""
    from tinygrad.renderer.amd import sqtt

    starts = (sqtt.WAVESTART, sqtt.WAVESTART_RDNA4, sqtt.CDNA_WAVESTART)
    ends = (sqtt.WAVEEND, sqtt.WAVEEND_RDNA4, sqtt.CDNA_WAVEEND)
    live: dict[tuple[int, int], TracedWave] = {}
    simd: int | None = None
    for packet in sqtt.decode(blob):
        if simd is None and not kernel.target.startswith("gfx9"):
            simd = packet.simd  # the first packet of RDNA is the trace's layout
        slot = (getattr(packet, "simd", simd), getattr(packet, "wave", -1))
        if isinstance(packet, starts):
            kernel.waves += 1
            if packet.cu == 0 and simd in (None, packet.simd):
                live[slot] = TracedWave()
        elif isinstance(packet, ends):
            wave = live.pop(slot, None) if packet.cu == 0 else None
            if wave is not None and has_instructions:
                if simd is not None:
                    wave.tokens.append("END")
                if wave.tokens:
                    kernel.traced.append(wave)
        elif isinstance(packet, sqtt.IMMEDIATE_MASK):
            for number in range(16):
                if packet.mask >> number & 1 and (simd, number) in live:
                    live[simd, number].tokens.append("IMMEDIATE")
        else:
            token = _token(sqtt, packet)
            where = slot if simd is None else (simd, slot[1])
            if token is not None and where in live:
                live[where].tokens.append(token)


_CLASSES = (
    (r"IMM", "IMMEDIATE"),
    (r"JUMP$", "TAKEN"),
    (r"(JUMP_NO|NEXT)", "NOT TAKEN"),
    (r"(VALU_(32|64)|SALU_(32|64)|LDS$|BRANCH|OTHER_MSG)", None),  # gfx950: the class and the width of the encoding
    (r"(WMMA|VINTERP|VALU)", "VALU"),
    (r"(BARRIER|SMEM|SALU|LDS_RD|LDS_WR|MESSAGE)", None),
    (r"(SGMEM|VMEM|FLAT|BUF)_(RD|WR)", None),
)


def _token(sqtt: Any, packet: Any) -> str | None:
    """Return the class of a packet's instruction; None if it is no instruction of the wave."""
    if isinstance(packet, sqtt.VALUINST):
        return "VALU"
    if isinstance(packet, sqtt.IMMEDIATE):
        return "IMMEDIATE"
    if not isinstance(packet, (sqtt.INST, sqtt.INST_RDNA4, sqtt.CDNA_INST)):
        return None
    name = packet.op.name if hasattr(packet.op, "name") else f"unknown {packet.op}"
    if name.startswith("OTHER_") and not isinstance(packet, sqtt.CDNA_INST):
        return None
    for pattern, token in _CLASSES:
        match = re.match(pattern, name)
        if match and token is None:
            memory = re.match(r"(?:SGMEM|VMEM|FLAT|BUF)_(RD|WR)", name)
            return f"MEMORY_{memory[1]}" if memory else match[0]
        if match:
            return token
    return name


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
