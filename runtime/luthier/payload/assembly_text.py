"""Preparation of a payload's assembly for a template: joins its functions, turns markers into labels, and adds waits
that LLVM may have omitted."""

from __future__ import annotations

import re
from collections import defaultdict

from msgspec import Struct

from luthier.errors import HookError
from luthier.hazards.insertion import wait_states
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa import Isa

_MARKER = re.compile(r"^\s*; luthier\.(input|output) (\d+) (\w+)\s*$", re.MULTILINE)
_MARKER_AT_LABEL = re.compile(
    r"^(luthier_\w+:\n(?:[ \t]*(?:;[^\n]*)?\n)*)(?=(?:[ \t]*(?:;[^\n]*)?\n)*[.\w$]*BB\d+_\d+:)", re.MULTILINE
)
"""A marker followed by a label. Both precede the same instruction, but a branch to the label (a loop) must not pass the
marker again."""
_RETURN = re.compile(r"^[ \t]*s_set(?:pc_b64|_pc_i64) s\[30:31\][ \t]*\n", re.MULTILINE)
_JOIN = re.compile(r"\S*BB\d+_\d+:")
"""A label of LLVM, where paths may join."""
_SCALAR_READS_VCC = re.compile(r"[ \t]*s_(cbranch_vcc|(bit)?cmpk?\w*[ \t][^\n]*\bvcc|\w+[ \t][^\n,]*,[^\n]*\bvcc)")
_SETTLES_VCC = {
    32: re.compile(r"[ \t]*(s_wait_alu[^\n]*sa_sdst\(0\)|[sv]_\w+[ \t]+vcc_lo,)"),
    64: re.compile(r"[ \t]*(s_wait_alu[^\n]*sa_sdst\(0\)|[sv]_\w+[ \t]+vcc,)"),
}
"""Wave size -> instructions after which VCC was written by a single instruction, or a wait has completed."""
_MATRIX = re.compile(r"^[ \t]*v_s?mfma[^\n]*", re.MULTILINE)
"""After these LLVM inserts wait states; for a generic processor those of one member, not of all."""
RECURSION_BYTES = 16384
"""Bytes of private memory for functions that call themselves or are called through pointers, whose needs are unknown.
LLVM assumes the same for unknown functions (``amdgpu-assume-external-call-stack-size``)."""
_STACK_ALIGNMENT = 16
_SETTING = re.compile(
    r"^[ \t]*\.set (?:\.L)?\"?(?:\.L)?[^\s,]*?\."
    r"(has_dyn_sized_stack|has_indirect_call|has_recursion|private_seg_size)\"?, (?:or\()?(\d+)",
    re.MULTILINE,
)
"""Pattern of LLVM's properties of each function."""
_FUNCTION = re.compile(r"^(\"?)([^\s\"]+)\1:[^\n]*\n(.*?)^\.Lfunc_end\d+:", re.MULTILINE | re.DOTALL)


def functions_of(assembly: str, hook: str) -> tuple[str, dict[str, str]]:
    """Return the text of the payload, and the texts of all functions that it may call, by name."""
    names = set(re.findall(r"^\s*\.type\s+\"?([^\s,\"]+)\"?,@function", assembly, re.MULTILINE))
    texts = {match[2]: match[3] for match in _FUNCTION.finditer(assembly) if match[2] in names}
    payload = texts.pop("luthier.payload", None)
    if payload is None or len(texts) != len(names) - 1:
        raise HookError(f"LLVM generated no code for hook {hook}")
    return payload, texts


def stack_size(assembly: str, hook: str, functions: int) -> int:
    """Return the bytes of private memory per lane: one frame for each function, and more if functions may recurse.

    Args:
        functions: number of functions.
    """

    values: defaultdict[str, list[int]] = defaultdict(list)
    for name, value in _SETTING.findall(assembly):
        values[name].append(int(value))

    def settings(name: str) -> list[int]:
        if len(values[name]) != functions:
            raise HookError(f"hook {hook}: LLVM does not report {name} for all of its functions")
        return values[name]

    if any(settings("has_dyn_sized_stack")):
        if any(settings("has_indirect_call")):
            raise HookError(f"hook {hook} calls a function through a pointer with unknown targets")
        raise HookError(f"hook {hook} needs private memory of a size known only when it runs")
    frames = sum(-(-size // _STACK_ALIGNMENT) * _STACK_ALIGNMENT for size in settings("private_seg_size"))
    recurses = any(settings("has_recursion")) or any(settings("has_indirect_call"))
    return frames + (RECURSION_BYTES if recurses and functions > 1 else 0)


def _with_scalar_waits(text: str, wait: str, wave_size: int) -> str:
    """Return the text with waits that LLVM may have omitted (GFX12).

    If VCC was written by a scalar instruction on one path and by a vector instruction on another, LLVM 22 drops both
    hazards at a scalar instruction that reads VCC after the join (AMDGPUWaitSGPRHazards: ``VCCHazard = None``), but
    hardware waits there only for vector instructions.

    Args:
        wait: the wait for results of scalar instructions.
    """
    lines, joined = [], False
    for line in text.splitlines(keepends=True):
        if _JOIN.match(line):
            joined = True
        elif joined and _SCALAR_READS_VCC.match(line):
            lines.append(f"\t{wait}\n")
            joined = False
        elif _SETTLES_VCC[wave_size].match(line):
            joined = False
        lines.append(line)
    return "".join(lines)


class PayloadText(Struct, frozen=True):
    """A payload's functions as one text, which ends with the label ``luthier_end``."""

    text: str
    called: frozenset[str]
    """Names of the functions that the payload may call, which are labels in the text."""


def prepared(assembly: str, hook: str, isa: Isa) -> PayloadText:
    """Replace returns by branches to the end of the payload, and markers of inputs and outputs by labels.

    Raises:
        HookError: there is no code, or an output has several markers.
    """
    text, called = functions_of(assembly, hook)
    *_, last = [None, *_RETURN.finditer(text)]
    if last is not None and not called and not text[last.end() :].strip():
        text = text[: last.start()]
    text = _RETURN.sub("\ts_branch luthier_end\n", text)
    text = "".join([text, *(f'"{name}":\n{body}' for name, body in called.items()), "luthier_end:\n"])
    markers = [match.group() for match in _MARKER.finditer(text)]
    if len(set(markers)) != len(markers):
        raise HookError(f"hook {hook} writes registers and has several exits; give it a single return")
    text = _MARKER.sub(lambda match: f"luthier_{match[1]}_{match[2]}_{match[3]}:", text)
    text = _MARKER_AT_LABEL.sub(r"\1\ts_nop 0\n", text)
    if states := hazard_model(isa.target.target, isa.wave_size).behind_matrix_of_some:
        text = _MATRIX.sub(lambda match: "\n".join([match.group(), *wait_states(states)]), text)
    if isa.target.target.scalar_wait is not None:
        text = _with_scalar_waits(text, isa.target.target.scalar_wait, isa.wave_size)
    return PayloadText(text, frozenset(called))
