"""Random straight code in which instructions are exactly as far apart as the table of hazards asks for."""

from __future__ import annotations

import random

from luthier.objects import CodeObject
from sequences import harmless, isa_of, missing_states, sequence
from wait_kernels import kernel

COUNT = 40
"""Instructions."""
_LONGEST = 16
"""Wait states of one s_nop."""


def padded_kernel(target: str, seed: int) -> CodeObject:
    """A code object with the kernel ``k``."""
    chance = random.Random(f"padded {target} {seed}")
    isa = isa_of(target)
    texts = chance.choices([text for text in harmless(isa) if "nop" not in text and "s_wait" not in text], k=COUNT)
    line = sequence(isa)
    lines = []
    for text, lacks in zip(texts, line.lacks(line.steps(texts), mend=True), strict=True):
        missing = missing_states(lacks)
        while missing > 0:
            lines.append(f"s_nop {min(missing, _LONGEST) - 1}")
            missing -= _LONGEST
        lines.append(text)
    return kernel(target, "; ".join(lines), 64 if isa.target.target.has_agprs else 0)
