"""Compilation for tests.

As builds do, they use precompiled headers, which sources share more freely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kept import ROOT, kept, run, version

from luthier_build.precompiled import Beginning
from luthier_build.workspace import digest

_ALIKE = re.compile(r"-D(?!__AMDGCN)\w+|-I.*|-w")
"""Flags under which headers are the same, so that one precompiled header serves all. A define is the source's own."""
_APART = re.compile(
    r"-O\d|-D__AMDGCN.*|-U__AMDGCN.*|-mwavefrontsize64|-ffp-contract=\w+|-mcode-object-version=\d|-std=c\+\+\d\d"
    r"|--(offload-arch|rocm-path|hip-version|rocm-device-lib-path)=.*"
)
"""Flags that want a header of their own."""
_HERE = re.compile(rf"{re.escape(str(ROOT))}(?=/|$)")
_DEVICE_ONLY = ("--offload-device-only", "--cuda-device-only", "--no-gpu-bundle-output")


def compiled(command: Iterable[object], inputs: Iterable[Path], name: str) -> Path:
    """Return what a compiler makes with `-o`.

    Args:
        command: the compiler and its arguments, without the output. Checkouts share what is made, except with debug
            information, which names the sources' folders.
        inputs: files whose content the result depends on, beside the compiler itself.
        name: name of the output.
    """
    arguments, files = [str(part) for part in command], sorted(inputs)
    contents = [digest(path) for path in files]
    shared = not any(argument.startswith("-g") for argument in arguments)
    named = [_HERE.sub("", argument) if shared else argument for argument in arguments[1:]]
    key = version(arguments[0]), named, contents
    return kept(key, lambda output: run([*arguments, *_precompiled(arguments, files), "-o", str(output)]), name)


def _precompiled(command: Sequence[str], inputs: Iterable[Path]) -> list[str]:
    """Return the flags that make a compiler use a precompiled header; none where that might change the result."""
    known = {str(path) for path in inputs}
    sources = [one for one in command if one in known]
    if len(sources) != 1:
        return []
    flags, rest = [], iter(one for one in command[1:] if one != sources[0])
    for flag in rest:
        if flag in ("-x", "-include"):
            flags += [flag, next(rest)]
            if flag == "-include" and not Path(flags[-1]).is_file():
                return []  # it is found in folders that are left out here
        elif _APART.fullmatch(flag):
            flags.append(flag)
        elif flag not in _DEVICE_ONLY and not _ALIKE.fullmatch(flag):
            return []
    if flags[:2] != ["-x", "hip"] or not set(_DEVICE_ONLY[:2]) & set(command):
        return []
    beginning = Beginning(Path(command[0]), (command[0], version(command[0])), tuple(flags), Path("/"))
    return beginning.flags_for(Path(sources[0]))[0]
