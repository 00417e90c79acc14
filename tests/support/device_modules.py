"""Tool modules that tests compile: each target when it is asked for, once for all tests and checkouts."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

import pytest
from kept import FOLDER, kept
from luthier.isa.targets import TargetId
from luthier.module import DeviceContents, ToolModule

from luthier_build.compile import compile_device
from luthier_build.settings import Settings
from luthier_build.workspace import build_folder

PREFIX = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
"""
_CONDITIONAL = re.compile(r"^\s*#\s*if", re.MULTILINE)
"""What makes a source another one for some targets."""
_ENVIRONMENT = dict(os.environ)
"""The environment before tests change it: some of them compile."""


def device_module(
    source: str, targets: Sequence[str], *, both_wave_sizes: bool = False, in_file: bool = False
) -> ToolModule:
    """Return the tool module of HIP source, without its usual first lines.

    Args:
        in_file: whether its name is to be that of a file that has it for all targets.
    """
    if in_file or _CONDITIONAL.search(source):
        return ToolModule.load(_bundle(source, targets, both_wave_sizes))

    @functools.cache
    def compiled(target: str) -> DeviceContents:
        module = ToolModule.load(_bundle(source, [target], both_wave_sizes))
        return module.contents_for(TargetId.parse(target))

    return _OnDemand(targets, compiled)


def _bundle(source: str, targets: Sequence[str], both_wave_sizes: bool) -> Path:
    """Return the offload bundle that a build makes of a source."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - _ENVIRONMENT.keys():
            patch.delenv(name)
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        # The other one takes as long to compile.
        settings = Settings() if both_wave_sizes else Settings(defines=("LUTHIER_ONE_WAVE_SIZE",))
        path = kept(PREFIX + source, lambda path: path.write_text(PREFIX + source), "device.hip")
        key = hashlib.sha256(repr((source, tuple(targets), both_wave_sizes)).encode()).hexdigest()[:32]
        # The build checks whether what it finds there is up to date.
        with build_folder(FOLDER / f"module-{key}") as folder:
            return compile_device(
                [path], targets, settings, folder=folder, project=FOLDER, report=lambda line: None
            ).bundle


class _Contents(Sequence[DeviceContents]):
    """What `compiled` gives for each target, when it is looked at."""

    def __init__(self, targets: Sequence[str], compiled: Callable[[str], DeviceContents]) -> None:
        self._targets, self._compiled = targets, compiled

    def __len__(self) -> int:
        return len(self._targets)

    @overload
    def __getitem__(self, index: int) -> DeviceContents: ...

    @overload
    def __getitem__(self, index: slice) -> list[DeviceContents]: ...

    def __getitem__(self, index: int | slice) -> DeviceContents | list[DeviceContents]:
        if isinstance(index, slice):
            return list(map(self._compiled, self._targets[index]))
        return self._compiled(self._targets[index])


class _OnDemand(ToolModule):
    """A module of a source that is the same for every target, compiled for its first one, others when they are asked
    for."""

    def __init__(self, targets: Sequence[str], compiled: Callable[[str], DeviceContents]) -> None:
        contents = _Contents(targets, compiled)
        super().__init__(contents, "a module of the tests")
        self._targets = tuple(map(TargetId.parse, targets))
        self._first = contents[:1]  # at once: what does not compile is an error here

    @property
    def targets(self) -> tuple[TargetId, ...]:
        return self._targets

    def _describing(self) -> Sequence[DeviceContents]:
        return self._first

    def contents_for(self, target: TargetId) -> DeviceContents:
        fitting = [place for place, built in enumerate(self._targets) if built.covers(target)]
        return ToolModule([self._contents[place] for place in fitting] or self._contents, self.name).contents_for(
            target
        )
