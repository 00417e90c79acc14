"""The option that writes expected texts, and what tests here import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from llvm_releases import release  # noqa: F401 - a fixture

sys.path.append(str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write the expected texts of the file tests")
