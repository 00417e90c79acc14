"""clang-tidy finds what is planted in native code, and looks at nothing twice that has no findings."""

from __future__ import annotations

from pathlib import Path

import lint_native
import pytest
from lint_native import Unit
from luthier.cache.store import Store

SOUND = '#include "inner.h"\nint size() { return inner(); }\n'
DEFECTS = {
    "bugprone-use-after-move": "#include <string>\n#include <utility>\nauto f(std::string a) { "
    "std::string b = std::move(a); return b + a; }\n",
    "bugprone-unchecked-optional-access": "#include <optional>\nint f(std::optional<int> a) { return *a; }\n",
    "clang-analyzer-core.NullDereference": "int f(int *a) { if (!a) return *a; return 0; }\n",
    "modernize-use-nullptr": "int *f() { return 0; }\n",
}


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    """A source without findings, with a header in a folder of headers."""
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "inner.h").write_text("inline int inner() { return 1; }\n")
    source = tmp_path / "source.cpp"
    source.write_text(SOUND)
    return Unit(source, ("-std=c++17", "-Iheaders"))


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "kept" / "native.sqlite")


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_each_time(tmp_path: Path, unit: Unit, kept: Store, name: str) -> None:
    unit.source.write_text(DEFECTS[name])
    for _ in range(2):
        findings, looked_at = lint_native.check([unit], kept, tmp_path)
        assert looked_at == 1
        assert len(findings) == 1
        assert f"[{name}" in findings[0]


def test_what_does_not_compile_is_found(tmp_path: Path, unit: Unit, kept: Store) -> None:
    unit.source.write_text('#include "missing.h"\n')
    assert "missing.h" in lint_native.check([unit], kept, tmp_path)[0][0]


def test_a_source_without_findings_is_looked_at_once(tmp_path: Path, unit: Unit, kept: Store) -> None:
    assert lint_native.check([unit], kept, tmp_path) == ([], 1)
    assert lint_native.check([unit], kept, tmp_path) == ([], 0)
    assert lint_native.check([Unit(unit.source, (*unit.flags, "-DA"))], kept, tmp_path) == ([], 1)
    (tmp_path / "headers" / "inner.h").write_text("inline int inner() { return 2; }\n")
    assert lint_native.check([unit], kept, tmp_path) == ([], 1)


def test_the_analyser_may_be_left_out(tmp_path: Path, unit: Unit, kept: Store) -> None:
    unit.source.write_text(DEFECTS["clang-analyzer-core.NullDereference"])
    assert lint_native.check([unit], kept, tmp_path, lint_native.WITHOUT_ANALYSER) == ([], 1)
    findings, looked_at = lint_native.check([unit], kept, tmp_path)
    assert (len(findings), looked_at) == (1, 1)


def test_another_configuration_is_another_key(tmp_path: Path, unit: Unit, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lint_native.key_of(unit, "1", tmp_path)
    assert lint_native.key_of(unit, "2", tmp_path) != before
    configuration = tmp_path / ".clang-tidy"
    configuration.write_text(lint_native.CONFIGURATION.read_text() + "# more\n")
    monkeypatch.setattr(lint_native, "CONFIGURATION", configuration)
    assert lint_native.key_of(unit, "1", tmp_path) != before


def test_all_native_sources_are_checked() -> None:
    units = [*lint_native.native_units(), *lint_native.plugin_units()]
    assert len(units) > 40
    assert list(lint_native.unchecked(units)) == []
    lifting = next(unit for unit in units if unit.source.name == "wide.cpp")
    assert lint_native.ROOT / "runtime/native/lifting/liveness.cpp" in lint_native.closure(lifting)
    assert lint_native.ROOT / lint_native.BUILD / "headers/unit_numbers.h" in lint_native.closure(lifting)
    assert [path.name for path in lint_native.unchecked(unit for unit in units if unit.source.name != "aql.cpp")] == [
        "aql.cpp"
    ]
