"""Runs the text cases: IR in, IR (or a message) out, as LLVM's own tests are written.

Every ``; RUN:`` line of a file in ``cases`` is a shell command. In it, ``%s`` is the file, ``%t`` a scratch file,
``%plugin`` the plugin, ``%opt`` an opt with the plugin and with the option that clang gives it for non-RDC HIP,
``%bare-opt`` an opt with the plugin alone, ``%manifest`` a printer of the manifest in the bitcode it reads. ``opt``,
``FileCheck``, ``not`` and the like are those of the LLVM release under test. ``; REQUIRES: llvm>=N`` skips older ones.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.covering(1)

CASES = sorted((Path(__file__).parent / "cases").glob("*.ll"))
PRINTER = Path(__file__).with_name("print_manifest.py")


def _run_lines(case: Path) -> list[str]:
    text = case.read_text().replace("\\\n; RUN:", "")
    return re.findall(r"^; RUN: (.*)$", text, re.MULTILINE)


def test_there_are_cases() -> None:
    assert len(CASES) >= 15


@pytest.mark.worth(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_case(case: Path, release, tmp_path: Path) -> None:
    required = re.search(r"^; REQUIRES: llvm>=(\d+)$", case.read_text(), re.MULTILINE)
    if required and release.toolchain.llvm_major < int(required[1]):
        pytest.skip(f"needs LLVM {required[1]}")
    checker = shutil.which("FileCheck-22") or "/usr/lib/llvm-22/bin/FileCheck"
    if not Path(checker).exists():
        pytest.skip("no FileCheck: apt install llvm-22-tools")
    bare = f"opt -load-pass-plugin={release.plugin}"
    substitutions = {
        "%bare-opt": bare,
        "%opt": f"{bare} -amdgpu-internalize-symbols",
        "%plugin": str(release.plugin),
        "%manifest": shlex.join([sys.executable, str(PRINTER)]),
        "%t": str(tmp_path / "scratch"),
        "%s": str(case),
    }
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("FileCheck", "not"):  # packaged for the newest release only
        (tools / name).symlink_to(Path(checker).with_name(name))
    environment = {**os.environ, "PATH": f"{tools}:{release.bin}:{os.environ['PATH']}"}
    lines = _run_lines(case)
    assert lines, "no RUN line"
    for line in lines:
        command = re.sub("|".join(substitutions), lambda match: substitutions[match[0]], line)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment, timeout=60
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
