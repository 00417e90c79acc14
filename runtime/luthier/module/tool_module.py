"""A tool's device side, loaded: hooks and variables of one device module, with its bitcode for each target."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from luthier.errors import HookError, ToolError
from luthier.isa.targets import TargetId
from luthier.module.compilations import by_source
from luthier.module.demand import OnDemand, best_for, wanted
from luthier.module.description import DeviceContents, DeviceVariable, Hook, Parameter
from luthier.module.embedded import BITCODE_MAGIC, BITCODE_SECTION, read_bitcode, read_object
from luthier.module.manifest import ModuleManifest
from luthier.module.packages import read_installed
from luthier.objects import load_objects
from luthier.objects.bundles import FAT_BINARY_MAGICS


class ToolModule:
    """A device module of a tool, for one or several targets.

    Hooks are attributes: ``module.count_vector``; `hook` finds those whose names are no identifiers. Make one by
    `from_package`, `load` or `load_all`.

    Args:
        contents: one a target, all of the same sources.
        name: what errors call it.
    """

    _more: OnDemand | None = None
    """What it can be compiled for, besides `contents`."""

    def __init__(self, contents: Sequence[DeviceContents], name: str) -> None:
        self.name = name
        self._contents = contents
        self._described: Mapping[str, Hook] = {}
        self._told: Mapping[str, DeviceVariable] = {}

    @classmethod
    def from_package(cls, package: str, module: str = "device") -> ToolModule:
        """Return the module that a tool package's build put beside its Python code; the same object each time.

        Raises:
            ToolError: there is no such package or module, or it is not the compiler plugin's.
        """
        return _loader(package, module)

    @classmethod
    def load(cls, source: bytes | str | os.PathLike[str]) -> ToolModule:
        """Return the one module in an offload bundle, code object, executable, library, archive, or file of bitcode.

        Raises:
            ToolError: there are none or several.
        """
        found = cls.load_all(source)
        if len(found) != 1:
            names = ", ".join(f"{module._contents[0].source} ({', '.join(module.hooks)})" for module in found)
            name = "<memory>" if isinstance(source, bytes) else os.fspath(source)
            raise ToolError(f"holds {len(found)} device modules; choose one by load_all: {names}", object=name)
        return found[0]

    @classmethod
    def load_all(cls, source: bytes | str | os.PathLike[str]) -> list[ToolModule]:
        """Return every module in a file, as `load` reads it.

        Code objects that one source was compiled to are one module for several targets: those in one offload bundle, as
        HIP's compilers make one for each source, and those in none that have the CUID in common, and hooks. A module
        that is there twice is returned once.

        Raises:
            ToolError: there is none, or objects outside bundles cannot be told apart.
        """
        name = "<memory>" if isinstance(source, bytes) else os.fspath(source)
        try:
            data = source if isinstance(source, bytes) else Path(source).read_bytes()
        except OSError as problem:
            raise ToolError(f"cannot read: {problem.strerror}", object=name) from None
        if data.startswith(BITCODE_MAGIC):
            try:
                return [cls([read_bitcode(data, name)], name)]
            except ToolError:
                if any(magic in data for magic in FAT_BINARY_MAGICS):  # of a host, made with -flto
                    raise ToolError("LLVM bitcode, not a code object; link it first", object=name) from None
                raise
        found = [
            (object.bundle, read_object(object))
            for object in load_objects(source)
            if object.section_data(BITCODE_SECTION) is not None
        ]
        if not found:
            raise ToolError(
                f"no code object with a {BITCODE_SECTION} section: was it built with Luthier's plugin?", object=name
            )
        groups = by_source(found, name)
        if len(groups) == 1:
            return [cls(groups[0], name)]
        return [cls(group, f"{name}[{group[0].source}]") for group in groups]

    @property
    def cuid(self) -> str:
        """Return the compilation-unit id that clang gave the module, the same for every target.

        It is empty before clang 18.
        """
        return self._contents[0].cuid

    @property
    def targets(self) -> tuple[TargetId, ...]:
        """Return the targets that it was built for, or is when it is needed for them."""
        built = tuple(contents.target for contents in self._contents)
        more = self._more.targets if self._more else ()
        return (*more, *(one for one in built if one not in more))

    @property
    def wave_sizes(self) -> Mapping[TargetId, tuple[int, ...]]:
        """Return for each target that it was built for the lanes per wave of the kernels that its hooks can go into."""
        return {contents.target: contents.wave_sizes for contents in self._contents}

    @functools.cached_property
    def hooks(self) -> Mapping[str, Hook]:
        """Return the hooks by symbol name; one that only some targets have names these."""
        hooks = {symbol: replace(hook, owner=self) for symbol, hook in self._compiled_hooks().items()}
        for symbol, told in self._described.items():
            hooks[symbol] = replace(hooks[symbol], parameters=told.parameters, documentation=told.documentation)
        return hooks

    def _describing(self) -> Sequence[DeviceContents]:
        """Return the contents that have all hooks and variables between them."""
        return self._contents

    def _compiled_hooks(self) -> Mapping[str, Hook]:
        having: dict[str, list[str]] = {}
        hooks: dict[str, Hook] = {}
        for contents in self._describing():
            for hook in contents.hooks:
                hooks.setdefault(hook.symbol, hook)
                having.setdefault(hook.symbol, []).append(str(contents.target))
        return {
            symbol: hook
            if len(having[symbol]) == len(self._describing())
            else replace(hook, targets=(*having[symbol],))
            for symbol, hook in hooks.items()
        }

    def describe(self, manifest: ModuleManifest) -> None:
        """Take what the build read in the sources from its manifest: bitcode may lack names and signs of parameters,
        and has no types of variables.

        Raises:
            ToolError: not a manifest of this module.
        """
        compiled = self._compiled_hooks()
        described = {hook.symbol: hook for hook in manifest.hooks if hook.symbol in compiled}
        for symbol, hook in compiled.items():
            told = described.get(symbol)
            if told is None or not _fit(told.parameters, hook.parameters):
                raise ToolError(f"its manifest does not fit its bitcode: hook {symbol} is another", object=self.name)
        self._described = described
        self._told = {variable.symbol: variable for variable in manifest.variables}

    def hook(self, name: str) -> Hook:
        """Return the hook with this symbol or source name (``Counter::count``), or with its last part (``count``).

        Raises:
            HookError: there is none, or there are several: instances of a template, members of several classes.
        """
        if name in self.hooks:
            return self.hooks[name]
        found = [hook for hook in self.hooks.values() if hook.name == name]
        found = found or [hook for hook in self.hooks.values() if hook.name.rpartition("::")[2] == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise HookError(f"{self.name} has several hooks {name!r}: {', '.join(hook.symbol for hook in found)}")
        raise HookError(f"{self.name} has no hook {name!r}; it has {', '.join(self.hooks) or 'none'}")

    def __getattr__(self, name: str) -> Hook:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            found = self.hook(name)
        except HookError as problem:
            raise AttributeError(str(problem)) from None
        self.__dict__[name] = found  # tools access it at every point
        return found

    @functools.cached_property
    def variables(self) -> Mapping[str, DeviceVariable]:
        """Return the variables by symbol name."""
        found: dict[str, DeviceVariable] = {}
        every = [one for contents in self._describing() for one in (contents, contents.other) if one is not None]
        for variable in itertools.chain.from_iterable(one.variables for one in every):
            if variable.symbol in found:
                continue
            told = self._told.get(variable.symbol)
            if told is not None and told.size == variable.size:
                variable = replace(variable, type=told.type, documentation=told.documentation)
            found[variable.symbol] = variable
        return found

    def contents_for(self, target: TargetId) -> DeviceContents:
        """Return what was compiled for applications of this target, or compile it where that can be done.

        Raises:
            BuildError: it cannot be compiled.
            ToolError: the module was not built for it.
        """
        serving = self._more.serving(target)[:1] if self._more else []
        if self._more and serving and self.targets_compiled.isdisjoint(serving):
            self._add(*self._more.compile(serving[0]))
        fitting = best_for(target, self._contents, lambda contents: contents.target)
        if not fitting:
            raise ToolError(
                f"not built for this target, only for {', '.join(str(built) for built in self.targets)}",
                object=self.name,
                target=str(target),
            )
        return fitting[0]

    def compile_for_more(self, more: OnDemand) -> None:
        """Let targets that are missing be compiled when they are needed."""
        self._more = more

    def _add(self, bundle: bytes, manifest: ModuleManifest) -> None:
        """Take in what was compiled for another target.

        Raises:
            ToolError: it is of other sources.
        """
        loaded = load_built(bundle, manifest)
        other = loaded.hooks
        for symbol, hook in self.hooks.items():
            if symbol in other and other[symbol].parameters != hook.parameters:
                raise ToolError(
                    f"its sources were changed since this program has loaded it: hook {symbol}", object=self.name
                )
        have = self.targets_compiled
        self._contents = (*self._contents, *(one for one in loaded._contents if one.target not in have))
        self._described = {**loaded._described, **self._described}
        self._told = {**loaded._told, **self._told}
        for known in ("hooks", "variables"):
            self.__dict__.pop(known, None)

    @property
    def targets_compiled(self) -> frozenset[TargetId]:
        """Return the targets that it has code for by now."""
        return frozenset(contents.target for contents in self._contents)


def _fit(told: Sequence[Parameter], compiled: Sequence[Parameter]) -> bool:
    """Return whether a build's parameters are those in the bitcode, where signs are not known."""
    known = [Parameter.of_llvm(one.llvm, signed=one.signed) for one in told]
    same = [(one.llvm, one.kind, one.size) for one in told] == [(one.llvm, one.kind, one.size) for one in known]
    return same and [one.llvm for one in told] == [one.llvm for one in compiled]


def load_built(bundle: bytes, manifest: ModuleManifest) -> ToolModule:
    """Return the module in an offload bundle that a build made, with the description in the build's manifest.

    Raises:
        ToolError: it is no module of the compiler plugin's, or not the manifest's.
    """
    loaded = ToolModule.load(bundle)
    loaded.name = f"{manifest.package}.{manifest.module}"
    loaded.describe(manifest)
    return loaded


Loader = Callable[[str, str], ToolModule]
"""Package and module name -> the module."""


@functools.lru_cache(maxsize=64)
def _load_installed(package: str, module: str) -> ToolModule:
    bundle, manifest, targets = read_installed(package, module, wanted())
    loaded = load_built(bundle, manifest)
    if targets:

        def compile(target: TargetId) -> tuple[bytes, ModuleManifest]:
            return read_installed(package, module, target)[:2]

        loaded.compile_for_more(OnDemand(compile, targets))
    return loaded


_loader: Loader = _load_installed


@contextmanager
def loaded_by(loader: Loader) -> Iterator[None]:
    """Let packages get their modules from `loader` meanwhile.

    So a tool can be tried with a module that is not installed.
    """
    global _loader
    before, _loader = _loader, loader
    try:
        yield
    finally:
        _loader = before
