"""The environment of a reader of the documents: separate shells and copies of the repository."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from kept import ROOT

Environment = Callable[..., dict[str, str]]
NOT_COPIED = (".*", "build", "__pycache__", "*.egg-info")
FROM_COPY = (
    "import sys; next(module for name, module in sys.modules.items() if name.startswith('__editable___luthier_'))"
    ".MAPPING['luthier'] = {place!r}\n"
)
"""A line of a .pth file: `luthier` comes from another place than the editable install says."""


@pytest.fixture(scope="module")
def reader_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """``reader_environment(copy)``: a reader's shell: an environment above the one that the tests run in, so that pip
    changes that alone; with Luthier's Python from a copy of the repository, if one is given."""

    def make(copy: Path | None = None) -> dict[str, str]:
        own = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
        packages = own / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (packages / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        if copy is not None:
            (packages / "copy.pth").write_text(FROM_COPY.format(place=str(copy / "runtime" / "luthier")))
        for name, module in (("luthier", "luthier.cli.main"), ("pip", "pip._internal.cli.main")):
            start = f"#!{own}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
            (own / "bin" / name).write_text(start)
            (own / "bin" / name).chmod(0o755)
        ours = ("VIRTUAL_ENV", "PYTHONPATH", "LUTHIER_TEST_ALL", "LUTHIER_TEST_SHARD")
        clean = {name: value for name, value in os.environ.items() if name not in ours}
        return {
            **clean,
            "PATH": f"{own / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "LUTHIER_TARGETS": "gfx90a",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    return make


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with what was built in place."""
    return Path(
        shutil.copytree(ROOT, tmp_path_factory.mktemp("copy") / "luthier", ignore=shutil.ignore_patterns(*NOT_COPIED))
    )


@pytest.fixture(scope="module")
def newcomer() -> ModuleType:
    """scripts/newcomer as a module."""
    loader = importlib.machinery.SourceFileLoader("newcomer", str(ROOT / "scripts/newcomer"))
    spec = importlib.util.spec_from_loader("newcomer", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
