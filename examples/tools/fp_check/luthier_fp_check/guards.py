"""Comparisons that detect an exceptional result, so that hooks run only then."""

from __future__ import annotations

from dataclasses import replace

from luthier import InstrumentationTask
from luthier.errors import DecodeError
from luthier.isa import RegisterRange

from luthier_fp_check.shapes import Part, Shape

CLASSES = 0x207
"""NaN and infinities, in the encoding of v_cmp_class."""
_SET = f"s_movk_i32 {{vcc_lo}}, {CLASSES:#x}\n"


class Guards:
    """Comparisons of results in one kernel.

    If comparisons take no literals, an unused SGPR holds the classes.
    """

    def __init__(self, task: InstrumentationTask) -> None:
        self._task = task
        self._literal = self._assembles(f"v_cmp_class_f32_e64 vcc, v0, {CLASSES:#x}") or self._assembles(
            f"v_cmp_class_f32_e64 vcc_lo, v0, {CLASSES:#x}"
        )
        self._kept = ""

    def of(self, shape: Shape, result: RegisterRange, *, high: bool) -> list[str]:
        """Return comparisons, one of which is true in a lane with an exceptional result; none if there are no such.

        Args:
            high: the result is the upper half of the register.
        """
        parts = [replace(one.result, high=one.result.high or high) for one in shape.elements]
        tests = [self._test(part, result) for part in parts]
        return tests if all(tests) else []

    def _test(self, part: Part, result: RegisterRange) -> str:
        whole = str(result)
        if part.type == "f64":
            return self._classes("f64", whole)
        if result.count > 1:
            whole = str(RegisterRange(result.first + part.high))
        if part.type == "f32" or (part.type == "bf16" and part.high):  # a bfloat is the upper half of a float
            return self._classes("f32", whole)
        if part.type == "f16" and not part.high:
            test = self._classes("f16", whole)
            return test if self._takes(test) else self._classes("f16", f"{whole}.l")
        if part.type == "f16":
            test = self._classes("f16", f"{whole}.h")
            sdwa = f"{_SET}v_cmp_class_f16_sdwa {{vcc}}, {whole}, {{vcc_lo}} src0_sel:WORD_1 src1_sel:DWORD"
            return next((one for one in (test, sdwa) if self._takes(one)), "")
        return ""

    def _classes(self, type: str, register: str) -> str:
        """Return the comparison of a register."""
        if self._literal:
            return f"v_cmp_class_{type}_e64 {{vcc}}, {register}, {CLASSES:#x}"
        if not self._kept:
            self._kept = self._keep()
        before = "" if self._kept != "{vcc_lo}" else _SET
        return f"{before}v_cmp_class_{type}_e64 {{vcc}}, {register}, {self._kept}"

    def _keep(self) -> str:
        """Return the register that holds the classes from the kernel's beginning on."""
        lifted = self._task.lifted
        register = None if lifted.kernel.descriptor.kernarg_preload_length else self._task.spare_sgprs(1)
        if register is None:
            return "{vcc_lo}"
        first = lifted.blocks[lifted.functions[0].entry_block].first
        self._task.add_before(first, f"s_movk_i32 {register}, {CLASSES:#x}")
        return str(register)

    def _takes(self, test: str) -> bool:
        wide = self._task.lifted.wave_size > 32
        return self._assembles(test.replace("{vcc}", "vcc" if wide else "vcc_lo").replace("{vcc_lo}", "vcc_lo"))

    def _assembles(self, text: str) -> bool:
        try:
            self._task.lifted.isa.assemble(text)
        except DecodeError:
            return False
        return True
