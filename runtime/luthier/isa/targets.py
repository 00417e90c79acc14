"""Target ids: processors with settings of their features, as spelled by clang and in metadata.

The processors are in `luthier.arch.targets`, whose names this module exports, too.
"""

from __future__ import annotations

import functools
import re

from msgspec import Struct

from luthier.arch.target import Target as Target
from luthier.arch.targets import TARGETS as TARGETS
from luthier.arch.targets import target_named as target_named
from luthier.arch.targets import target_of_mach as target_of_mach
from luthier.arch.targets import version_of as version_of
from luthier.errors import TargetError

_TRIPLE = re.compile(r"^(?:[a-z]\w*-)?amdgcn-[^-]*-[^-]*-[^-]*-")
"""Prefix before the processor in bundles and metadata: an optional offload kind and the four parts of a triple."""


class TargetId(Struct, frozen=True):
    """A processor with its feature settings, e.g. ``gfx942:sramecc+:xnack-`` (None: any).

    It denotes a set of devices: with one setting of each feature, or with both settings of an open feature; a generic
    processor denotes all processors that run its code. `covers` and `accepts` compare such sets.
    """

    target: Target
    sramecc: bool | None = None
    xnack: bool | None = None

    def covers(self, other: TargetId) -> bool:
        """Return whether this id denotes every device that `other` denotes.

        Code built for this id can then be inserted into code built for `other`, and a request for this id includes code
        for `other`.

        Source: LLVM AMDGPUUsage, "Target ID" and "Generic Processors".
        """
        return self.target.is_run_by(other.target) and self._settings_hold_for(other)

    def serves(self, other: TargetId) -> bool:
        """Return whether code for `other` may be generated from bitcode that was compiled for this id.

        Processors of a common generic one differ in instructions that a code generator selects, or refuses to emit if
        the bitcode names them. `covers` is sufficient for any bitcode.
        """
        return self.target.shares_generic(other.target) and self._settings_hold_for(other)

    def accepts(self, code: TargetId) -> bool:
        """Return whether a device with this id can run `code`. Open settings of the device match any code."""
        return code.target.is_run_by(self.target) and all(
            device is None or built in (None, device) for device, built in self._settings(code)
        )

    def _settings_hold_for(self, other: TargetId) -> bool:
        return all(mine is None or mine == theirs for mine, theirs in self._settings(other))

    def _settings(self, other: TargetId) -> tuple[tuple[bool | None, bool | None], ...]:
        """Return the settings of each feature in this id and in the other."""
        return (self.sramecc, other.sramecc), (self.xnack, other.xnack)

    @classmethod
    @functools.lru_cache(maxsize=256)
    def parse(cls, text: str) -> TargetId:
        """Parse a target id in the spelling of clang's ``--offload-arch`` and of code-object metadata.

        Raises:
            TargetError: the processor or a feature is unknown, the processor lacks a feature, or it is given twice.
        """
        name, *features = _TRIPLE.sub("", text).split(":")
        target = target_named(name)
        settings: dict[str, bool] = {}
        for feature in features:
            key, sign = feature[:-1], feature[-1:]
            if key not in ("sramecc", "xnack") or sign not in ("+", "-") or key in settings:
                raise TargetError(f"malformed target feature {feature!r} in {text!r}")
            if not (target.supports_xnack if key == "xnack" else target.supports_sramecc):
                raise TargetError(f"{name} has no feature {key}", target=text)
            settings[key] = sign == "+"
        return cls(target, settings.get("sramecc"), settings.get("xnack"))

    def __str__(self) -> str:
        parts = [self.target.name]
        for key, value in (("sramecc", self.sramecc), ("xnack", self.xnack)):
            if value is not None:
                parts.append(f"{key}{'+' if value else '-'}")
        return ":".join(parts)
