"""Register units: the numbering of docs/architecture.md, and the register a processor's encoder wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from effort import EVERY_ISA
from luthier.errors import DecodeError
from luthier.isa import Isa, RegisterRange, UnitSet
from luthier.isa import registers as r
from luthier.isa.targets import TARGETS


def units(isa: Isa, name: str) -> tuple[int, int, bool]:
    register = isa.register_named(name)
    return register.first_unit, register.unit_count, register.half


@pytest.mark.parametrize("target", ["gfx900", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_the_numbering(target: str) -> None:
    isa = Isa.of(target)
    expected = {
        "SGPR0": (0, 1, False),
        "SGPR101": (101, 1, False),
        "SGPR4_SGPR5_SGPR6_SGPR7": (4, 4, False),
        "VCC": (106, 2, False),
        "VCC_LO": (106, 1, False),
        "VCC_HI": (107, 1, False),
        "TTMP0": (108, 1, False),
        "TTMP15_gfx9plus": (123, 1, False),
        "TTMP4_TTMP5_gfx9plus": (112, 2, False),
        "M0": (124, 1, False),
        "M0_gfxpre11": (124, 1, False),
        "M0_gfx11plus": (124, 1, False),
        "EXEC": (126, 2, False),
        "EXEC_LO": (126, 1, False),
        "EXEC_HI": (127, 1, False),
        "SCC": (128, 1, False),
        "SRC_SCC": (128, 1, False),
        "MODE": (129, 1, False),
        "SRC_VCCZ": (106, 2, False),
        "SRC_EXECZ": (126, 2, False),
        "SRC_SHARED_BASE": (132, 1, False),
        "SRC_PRIVATE_LIMIT_LO": (132, 1, False),
        "LDS_DIRECT": (132, 1, False),
        "VGPR0": (256, 1, False),
        "VGPR255": (511, 1, False),
        "VGPR2_VGPR3_VGPR4": (258, 3, False),
        "VGPR7_LO16": (263, 1, True),
        "VGPR7_HI16": (263, 1, True),
        "SGPR7_LO16": (7, 1, True),
        "VCC_LO_LO16": (106, 1, True),
        "AGPR0": (1280, 1, False),
        "AGPR254_AGPR255": (1534, 2, False),
        "SGPR_NULL": (-1, 0, False),
        "SGPR_NULL64": (-1, 0, False),
        "SGPR_NULL_gfx11plus": (-1, 0, False),
        "VGPR256": (-1, 0, False),
        "VGPR255_VGPR256": (-1, 0, False),
        "PC_REG": (-1, 0, False),
    }
    gfx9 = TARGETS[target].major == 9
    expected["FLAT_SCR"] = (102, 2, False) if gfx9 else (130, 2, False)
    expected["FLAT_SCR_LO_vi"] = (102 if gfx9 else 130, 1, False)
    expected["FLAT_SCR_HI"] = (103 if gfx9 else 131, 1, False)
    expected["XNACK_MASK_LO"] = (104 if gfx9 else 132, 1, False)
    assert {name: units(isa, name) for name in expected} == expected
    assert isa.register(0).first_unit == -1


@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_the_encoder_takes_what_register_at_gives(target: str, wave: int) -> None:
    isa = Isa.of(target, wave)
    gfx9 = TARGETS[target].major == 9
    names = [f"s{number}" for number in range(102 if gfx9 else 106)]
    wanted = {name: number for number, name in enumerate(names)}
    wanted |= {f"ttmp{number}": 108 + number for number in range(16)}
    wanted |= {"vcc_lo": 106, "vcc_hi": 107, "m0": 124, "exec_lo": 126, "exec_hi": 127}
    if gfx9:
        wanted |= {"flat_scratch_lo": 102, "xnack_mask_hi": 105}
        if target in ("gfx942", "gfx950", "gfx9-4-generic"):
            del wanted["flat_scratch_lo"]  # its assembler refuses it, its encoding is the same
    for name, unit in wanted.items():
        if "xnack" in name and not TARGETS[target].supports_xnack:
            continue
        try:
            code = isa.assemble(f"s_mov_b32 {name}, 0").instructions
        except DecodeError:
            assert "xnack" in name
            continue
        number = isa.register_at(unit)
        assert number == code.operands(0)[0][1], name
        assert number is not None
        assert isa.register(number).text == name
        assert isa.decode(code.code).operands(0) == code.operands(0)
    for text, unit, count in (("s[2:3]", 2, 2), ("vcc", 106, 2), ("exec", 126, 2), ("ttmp[4:5]", 112, 2)):
        code = isa.assemble(f"s_mov_b64 {text}, 0").instructions
        assert isa.register_at(unit, count) == code.operands(0)[0][1]
    for text, unit, count in (("v[2:5]", 258, 4), ("v[252:255]", 508, 4)):
        code = isa.assemble(f"global_store_dwordx4 v[0:1], {text}, off").instructions
        position = isa.opcode(int(code.opcode[0])).operand_index["vdata"]
        assert isa.register_at(unit, count) == code.operands(0)[position][1]


@pytest.mark.parametrize(("target", "wave"), EVERY_ISA)
def test_tables_agree(target: str, wave: int) -> None:
    isa = Isa.of(target, wave)
    for unit in range(r.UNIT_LIMIT):
        for count in (1, 2, 3, 4, 8, 16, 32):
            number = isa.register_at(unit, count)
            if number is not None:
                assert isa.register_first_unit[number] == unit
                assert isa.register_unit_count[number] == count
                assert not isa.register_is_half[number]
    if TARGETS[target].major == 9:
        assert isa.register_at(100, 4) is None  # would reach into FLAT_SCRATCH
    else:
        assert isa.register_at(100, 4) is not None
    assert isa.register_at(r.SCC) == isa.register_named("SCC").number
    assert isa.register_at(r.MODE) == isa.register_named("MODE").number
    assert isa.register_at(r.VGPRS.start + TARGETS[target].addressable_vgprs - 1, 2) is None


def test_names_classes_and_errors() -> None:
    isa = Isa.of("gfx942")
    assert isa.register_named("VGPR0_VGPR1").text == "v[0:1]"
    vgprs = isa.registers_in_class("VGPR_32_Lo256")
    assert [isa.register(number).name for number in vgprs] == [f"VGPR{number}" for number in range(256)]
    for wrong in (lambda: isa.register(10**9), lambda: isa.register(-1), lambda: isa.register_named("VGPR")):
        with pytest.raises(DecodeError):
            wrong()
    with pytest.raises(DecodeError, match="register class 'nothing'"):
        isa.registers_in_class("nothing")


ONE_BY_ONE = {f"s{n}": n for n in range(106)} | {f"ttmp{n}": 108 + n for n in range(16)}
ONE_BY_ONE |= {f"v{n}": 256 + n for n in range(1024)} | {f"a{n}": 1280 + n for n in range(256)}
ONE_BY_ONE |= {"vcc_lo": 106, "vcc_hi": 107, "m0": 124, "exec_lo": 126, "exec_hi": 127, "scc": 128, "mode": 129}
ONE_BY_ONE |= {"flat_scratch_lo": 130, "flat_scratch_hi": 131}


def test_names_are_read_and_written() -> None:
    for name, unit in ONE_BY_ONE.items():
        assert RegisterRange.parse(name) == RegisterRange(unit)
        assert r.unit_name(unit) == name
    for name in ("vcc", "exec", "flat_scratch"):
        register = RegisterRange.parse(name)
        assert register == RegisterRange(ONE_BY_ONE[f"{name}_lo"], 2)
        assert str(register) == name
    for file, first, size in (("s", 0, 106), ("ttmp", 108, 16), ("v", 256, 1024), ("a", 1280, 256)):
        for low, high in ((0, 1), (3, 6), (size - 2, size - 1), (0, size - 1)):
            name = f"{file}[{low}:{high}]"
            assert RegisterRange.parse(name) == RegisterRange(first + low, high - low + 1)
            assert str(RegisterRange(first + low, high - low + 1)) == name
        assert RegisterRange.parse(f"{file}[2:2]") == RegisterRange.parse(f"{file}2")
        assert RegisterRange.parse(f"{file}{size}") is None
        assert RegisterRange.parse(f"{file}[0:{size}]") is None
        assert RegisterRange.parse(f"{file}[3:2]") is None
    wrong = [
        "",
        "s",
        "s-1",
        "x3",
        "v[1]",
        "v[1:]",
        "v[:1]",
        "v1 ",
        "V1",
        "v1\n",
        "vcc_mid",
        "s١",
        "v99999999999999999999",
    ]
    assert [name for name in wrong if RegisterRange.parse(name) is not None] == []
    assert str(RegisterRange(132)) == "unit132"


def register(name: str) -> RegisterRange:
    parsed = RegisterRange.parse(name)
    assert parsed is not None
    return parsed


def test_sets_of_units_name_their_runs() -> None:
    names = ["s[0:3]", "s7", "s[104:105]", "vcc", "ttmp[0:15]", "m0", "exec_hi", "scc", "mode", "flat_scratch"]
    names += ["v[0:1023]", "a[0:1]", "a255"]
    units = UnitSet.of(unit for name in names for unit in register(name).units)
    assert units.names() == names
    assert [str(one) for one in units.ranges()] == names
    assert str(UnitSet(0)) == "nothing"
    assert UnitSet.of(units) == units
    assert r.mask_of(range(256, 260)) == r.mask_of([256, 257, 258, 259]) == 15 << 256


def test_the_device_header_has_these_numbers(tmp_path: Path) -> None:
    pairs = {name.upper(): unit for name, unit in ONE_BY_ONE.items() if not name.startswith(("s", "v", "a", "ttmp"))}
    pairs |= {f"SGPR{n}": n for n in range(106)} | {f"VGPR{n}": 256 + n for n in range(256)}
    pairs |= {f"AGPR{n}": 1280 + n for n in range(256)} | {f"sgpr({n})": n for n in range(106)}
    pairs |= {f"vgpr({n})": 256 + n for n in range(1024)} | {f"agpr({n})": 1280 + n for n in range(256)}
    pairs |= {"VCC": 106, "VCC_LO": 106, "VCC_HI": 107, "TTMP0": 108, "EXEC": 126, "SCC": 128, "FLAT_SCRATCH": 130}
    source = tmp_path / "numbers.cpp"
    checks = "\n".join(f'static_assert({name} == {unit}, "{name}");' for name, unit in pairs.items())
    source.write_text(f"#include <luthier/registers.h>\nusing namespace luthier;\n{checks}\n")
    include = Path(__file__).parents[2] / "compiler_plugin" / "include"
    subprocess.run(["clang++-22", "-fsyntax-only", "-Wno-unknown-attributes", f"-I{include}", str(source)], check=True)
