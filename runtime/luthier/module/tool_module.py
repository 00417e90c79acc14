"""A loaded device module of a tool: hooks, variables, and bitcode for each target."""

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

    Hooks are attributes: ``module.count_vector``; `hook` finds those whose names are not identifiers. Create one with
    `from_package`, `load` or `load_all`.

    Args:
        contents: one for each target, of the same sources.
        name: name in errors.
    """

    _more: OnDemand | None = None
    """Targets for which it can be compiled, besides `contents`."""

    def __init__(self, contents: Sequence[DeviceContents], name: str) -> None:
        self.name = name
        self._contents = contents
        self._described: Mapping[str, Hook] = {}
        self._described_variables: Mapping[str, DeviceVariable] = {}

    @classmethod
    def from_package(cls, package: str, module: str = "device") -> ToolModule:
        """Return the module that the build put beside a tool package's Python code; always the same object.

        Raises:
            ToolError: there is no such package or module, or it lacks bitcode of the compiler plugin.
        """
        return _loader(package, module)

    @classmethod
    def load(cls, source: bytes | str | os.PathLike[str]) -> ToolModule:
        """Return the one module in an offload bundle, code object, executable, library, archive, or file of bitcode.

        Raises:
            ToolError: there are none or several.
        """
        modules = cls.load_all(source)
        if len(modules) != 1:
            names = ", ".join(f"{module._contents[0].source} ({', '.join(module.hooks)})" for module in modules)
            name = "<memory>" if isinstance(source, bytes) else os.fspath(source)
            raise ToolError(f"there are {len(modules)} device modules: choose one with load_all: {names}", object=name)
        return modules[0]

    @classmethod
    def load_all(cls, source: bytes | str | os.PathLike[str]) -> list[ToolModule]:
        """Return every module in a file, as `load` reads it.

        Code objects that were compiled from one source are one module for several targets: those in one offload bundle,
        which HIP's compilers create for each source, and those in none that share the CUID and hooks. Duplicate modules
        are returned once.

        Raises:
            ToolError: there is none, or objects outside of bundles cannot be told apart.
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
                if any(magic in data for magic in FAT_BINARY_MAGICS):  # host bitcode of -flto
                    raise ToolError("this is LLVM bitcode, not a code object: link it first", object=name) from None
                raise
        objects = [
            (object.bundle, read_object(object))
            for object in load_objects(source)
            if object.section_data(BITCODE_SECTION) is not None
        ]
        if not objects:
            raise ToolError(
                f"no code object has a {BITCODE_SECTION} section: was it built with Luthier's plugin?", object=name
            )
        groups = by_source(objects, name)
        if len(groups) == 1:
            return [cls(groups[0], name)]
        return [cls(group, f"{name}[{group[0].source}]") for group in groups]

    @property
    def cuid(self) -> str:
        """Return the compilation-unit ID from clang, the same for every target; "" before clang 18."""
        return self._contents[0].cuid

    @property
    def targets(self) -> tuple[TargetId, ...]:
        """Return the targets for which it was built, or is built on demand."""
        built = tuple(contents.target for contents in self._contents)
        more = self._more.targets if self._more else ()
        return (*more, *(one for one in built if one not in more))

    @property
    def wave_sizes(self) -> Mapping[TargetId, tuple[int, ...]]:
        """Return the wave sizes of kernels in which its hooks can run, for each target with code."""
        return {contents.target: contents.wave_sizes for contents in self._contents}

    @functools.cached_property
    def hooks(self) -> Mapping[str, Hook]:
        """Return the hooks by symbol name; a hook that only some targets have names these."""
        hooks = {symbol: replace(hook, owner=self) for symbol, hook in self._compiled_hooks().items()}
        for symbol, known in self._described.items():
            hooks[symbol] = replace(hooks[symbol], parameters=known.parameters, documentation=known.documentation)
        return hooks

    def _describing(self) -> Sequence[DeviceContents]:
        """Return the contents that together have all hooks and variables."""
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
        """Add what the build's manifest recorded from the sources: bitcode may lack names and signs of parameters, and
        has no types of variables.

        Raises:
            ToolError: it is not a manifest of this module.
        """
        compiled = self._compiled_hooks()
        described = {hook.symbol: hook for hook in manifest.hooks if hook.symbol in compiled}
        for symbol, hook in compiled.items():
            described_hook = described.get(symbol)
            if described_hook is None or not _fit(described_hook.parameters, hook.parameters):
                raise ToolError(f"the manifest does not match the bitcode: hook {symbol} differs", object=self.name)
        self._described = described
        self._described_variables = {variable.symbol: variable for variable in manifest.variables}

    def hook(self, name: str) -> Hook:
        """Return the hook with this symbol or source name (``Counter::count``), or with its last part (``count``).

        Raises:
            HookError: there is none, or several: instances of a template, members of several classes.
        """
        if name in self.hooks:
            return self.hooks[name]
        hooks = [hook for hook in self.hooks.values() if hook.name == name]
        hooks = hooks or [hook for hook in self.hooks.values() if hook.name.rpartition("::")[2] == name]
        if len(hooks) == 1:
            return hooks[0]
        if hooks:
            raise HookError(f"{self.name} has several hooks {name!r}: {', '.join(hook.symbol for hook in hooks)}")
        raise HookError(f"{self.name} has no hook {name!r}; it has {', '.join(self.hooks) or 'none'}")

    def __getattr__(self, name: str) -> Hook:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            hook = self.hook(name)
        except HookError as problem:
            raise AttributeError(str(problem)) from None
        self.__dict__[name] = hook  # tools access it at every point
        return hook

    @functools.cached_property
    def variables(self) -> Mapping[str, DeviceVariable]:
        """Return the variables by symbol name."""
        variables: dict[str, DeviceVariable] = {}
        every = [one for contents in self._describing() for one in (contents, contents.other) if one is not None]
        for variable in itertools.chain.from_iterable(one.variables for one in every):
            if variable.symbol in variables:
                continue
            described = self._described_variables.get(variable.symbol)
            if described is not None and described.size == variable.size:
                variable = replace(variable, type=described.type, documentation=described.documentation)
            variables[variable.symbol] = variable
        return variables

    def contents_for(self, target: TargetId) -> DeviceContents:
        """Return the contents for applications of this target, compiled on demand if possible.

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
        """Compile missing targets on demand."""
        self._more = more

    def _add(self, bundle: bytes, manifest: ModuleManifest) -> None:
        """Add the contents for another target.

        Raises:
            ToolError: its sources differ.
        """
        loaded = load_built(bundle, manifest)
        other = loaded.hooks
        for symbol, hook in self.hooks.items():
            if symbol in other and other[symbol].parameters != hook.parameters:
                raise ToolError(
                    f"its sources have changed since this program loaded it: hook {symbol}", object=self.name
                )
        have = self.targets_compiled
        self._contents = (*self._contents, *(one for one in loaded._contents if one.target not in have))
        self._described = {**loaded._described, **self._described}
        self._described_variables = {**loaded._described_variables, **self._described_variables}
        for known in ("hooks", "variables"):
            self.__dict__.pop(known, None)

    @property
    def targets_compiled(self) -> frozenset[TargetId]:
        """Return the targets for which it has code so far."""
        return frozenset(contents.target for contents in self._contents)


def _fit(described: Sequence[Parameter], compiled: Sequence[Parameter]) -> bool:
    """Return whether a build's parameters match those in the bitcode, which lack signs."""
    known = [Parameter.of_llvm(one.llvm, signed=one.signed) for one in described]
    same = [(one.llvm, one.kind, one.size) for one in described] == [(one.llvm, one.kind, one.size) for one in known]
    return same and [one.llvm for one in described] == [one.llvm for one in compiled]


def load_built(bundle: bytes, manifest: ModuleManifest) -> ToolModule:
    """Return the module in the offload bundle of a build, with the description in its manifest.

    Raises:
        ToolError: it is not a module of the compiler plugin, or does not match the manifest.
    """
    loaded = ToolModule.load(bundle)
    loaded.name = f"{manifest.package}.{manifest.module}"
    loaded.describe(manifest)
    return loaded


Loader = Callable[[str, str], ToolModule]
"""Package and module name -> module."""


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
    """Load modules of packages with `loader` meanwhile, e.g. to try a tool with a module that is not installed."""
    global _loader
    before, _loader = _loader, loader
    try:
        yield
    finally:
        _loader = before
