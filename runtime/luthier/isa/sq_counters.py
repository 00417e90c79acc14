"""Performance counters of the sequencer (SQ) of CDNA GPUs that an instruction increments, by their names in rocprofv3.

Where AMD's description leaves open what a counter counts, records of GPUs decide (docs/hardware.md). Counters that
depend on addresses are not here: a ``flat_*`` instruction that accesses LDS also increments ``SQ_INSTS_LDS``.
"""

from __future__ import annotations

import re
from functools import cache

_RULES = tuple(
    (re.compile(pattern), counters)
    for pattern, counters in {
        r"v_(s?mfma|wmma|swmmac)": ("SQ_INSTS_VALU", "SQ_INSTS_MFMA"),
        r"v_": ("SQ_INSTS_VALU",),
        r"ds_": ("SQ_INSTS_LDS",),
        r"(global|flat|scratch|t?buffer|image)_(load|sample|gather)": ("SQ_INSTS_VMEM", "SQ_INSTS_VMEM_RD"),
        r"(global|flat|scratch|t?buffer|image)_store": ("SQ_INSTS_VMEM", "SQ_INSTS_VMEM_WR"),
        r"(global|flat|scratch|buffer|image)_": ("SQ_INSTS_VMEM",),
        r"s_(buffer_|scratch_)?(load|store)_|s_(buffer_)?atomic_": ("SQ_INSTS_SMEM", "SQC_DCACHE_REQ"),
        r"s_(dcache|mem(real)?time|atc_probe)": ("SQ_INSTS_SMEM",),
        r"s_(c?branch|setpc|swappc|call|rfe)": ("SQ_INSTS_BRANCH",),
        r"s_(endpgm|sendmsg)": ("SQ_INSTS_SENDMSG",),
        r"s_(wait|nop|barrier|sleep|set(prio|halt|_gpr_idx)|icache|inst_prefetch|clause|delay|trap|ttrace)": (),
        r"s_": ("SQ_INSTS_SALU",),
    }.items()
)
_FLOAT = re.compile(r"v_(?P<name>[a-z]+)_(?P<type>f16|f32|f64)(?:_e32|_e64|_dpp|_sdwa|$)")
_KINDS = {
    **dict.fromkeys(("add", "sub", "subrev"), "ADD"),
    "mul": "MUL",
    **dict.fromkeys(("fma", "fmac", "mac", "mad"), "FMA"),
    **dict.fromkeys(("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos"), "TRANS"),
}
_INT32 = re.compile(
    r"v_((add|sub|subrev)(_co)?(_ci)?|addc_co|subb_co|cmpx?_\w+|ashrrev|mul_lo|mad_u64)_[iu]32(_e32|_e64|_dpp|_sdwa)?$"
)


@cache
def sq_counters_of(mnemonic: str) -> frozenset[str]:
    """Return the counters that each execution of an instruction by a wave increments by one."""
    counters = next((counters for pattern, counters in _RULES if pattern.match(mnemonic)), ())
    return frozenset(("SQ_INSTS", *counters, *_arithmetic(mnemonic)))


def _arithmetic(mnemonic: str) -> tuple[str, ...]:
    match = _FLOAT.match(mnemonic)
    if match and match["name"] in _KINDS:
        return (f"SQ_INSTS_VALU_{_KINDS[match['name']]}_{match['type'].upper()}",)
    if mnemonic.startswith("v_cvt_"):
        return ("SQ_INSTS_VALU_CVT",)
    if mnemonic.startswith("v_lshl_add_u64"):
        return ("SQ_INSTS_VALU_INT64",)
    return ("SQ_INSTS_VALU_INT32",) if _INT32.match(mnemonic) else ()


COUNTERS = frozenset(("SQ_WAVES",)).union(
    *(sq_counters_of(name) for name in ("v_mfma_f32", "v_cvt_f32_i32", "v_lshl_add_u64", "v_add_u32", "ds_read_b32")),
    *(counters for _, counters in _RULES),
    *(_arithmetic(f"v_{name}_{type}") for name in _KINDS for type in ("f16", "f32", "f64")),
)
"""All counters that can be counted from mnemonics, and the number of waves."""
