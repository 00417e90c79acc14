"""setuptools extension: ``[tool.luthier]`` in ``pyproject.toml``, or ``setup(luthier={...})``, adds a build step.

setuptools calls `finalize_distribution` for every project that is built where Luthier is installed. It returns at once
for projects that do not use Luthier, and imports nothing slow for them.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any, ClassVar

from luthier.errors import LuthierError
from setuptools import Command, Distribution
from setuptools.errors import CompileError, OptionError, SetupError

from luthier_build.layout import outermost
from luthier_build.settings import Settings, describe, load_settings, read_pyproject, read_table
from luthier_build.setuptools_version import OLDEST, wanted_by_tool, why_too_old

COMMAND = "build_luthier"
_NOT_FLAGS = ("modules", "package", "verbose", "editable_rebuild")

config_settings: dict[str, object] = {}
"""Configuration settings of the build frontend, set by `luthier_build.backend`."""


def finalize_distribution(distribution: Distribution) -> None:
    """Add the command if the project has settings for it.

    Entry point ``setuptools.finalize_distribution_options``.
    """
    try:
        has_modules = getattr(distribution, "luthier", None) is not None or read_table(Path.cwd()) is not None
        if reason := why_too_old(OLDEST if has_modules else wanted_by_tool(read_pyproject(Path.cwd()))):
            raise SetupError(reason)
    except LuthierError as problem:
        raise SetupError(str(problem)) from problem
    if not has_modules:
        return
    distribution.cmdclass.setdefault(COMMAND, BuildLuthier)
    build: Any = distribution.get_command_class("build")
    if not any(name == COMMAND for name, _ in build.sub_commands):
        with_device = [*build.sub_commands, (COMMAND, None)]
        distribution.cmdclass["build"] = type("build", (build,), {"sub_commands": with_device})
    distribution.cmdclass["sdist"] = _without_record(distribution.get_command_class("sdist"))


def _without_record(sdist: Any) -> type[Any]:
    """Return an ``sdist`` command that leaves out the record of an editable install."""

    def make_release_tree(self: Any, base_dir: str, files: list[str]) -> None:
        from luthier.module.packages import RECORD

        sdist.make_release_tree(self, base_dir, [name for name in files if Path(name).name != RECORD])

    return type("sdist", (sdist,), {"make_release_tree": make_release_tree})


def check_keyword(distribution: Distribution, name: str, value: object) -> None:
    """Check the value of ``setup(luthier={...})``, which has the same keys as ``[tool.luthier]``.

    Entry point ``distutils.setup_keywords``.
    """
    if value is not None and not isinstance(value, dict):
        raise SetupError(f"setup({name}=…) must be a dictionary with the keys of [tool.luthier], not {value!r}")


class BuildLuthier(Command):  # type: ignore[misc] # setuptools has no types
    """Compile the device modules of a tool (a sub-command of ``build``)."""

    description = "compile Luthier device modules"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = [
        *(
            (key if isinstance(item.default, bool) else f"{key}=", None, meaning)
            for item in dataclasses.fields(Settings)
            if item.name not in _NOT_FLAGS
            for key, _, meaning in describe()
            if key == item.name.replace("_", "-")
        ),
        ("build-lib=", "b", "folder in which the package is built"),
        ("inplace", "i", "write the artefacts to the source tree"),
        ("show-settings", None, "show every command and the source of each setting"),
    ]
    boolean_options: ClassVar[list[str]] = ["compress", "inplace", "show-settings"]

    def initialize_options(self) -> None:
        """Initialize all options (called by setuptools)."""
        for item in dataclasses.fields(Settings):
            if item.name not in _NOT_FLAGS:
                setattr(self, item.name, None)
        self.build_lib: str | None = None
        self.inplace = False
        self.show_settings = False
        self.editable_mode = False
        self.settings = Settings()

    def finalize_options(self) -> None:
        """Read the project's settings (called by setuptools)."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))
        flags = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(Settings)
            if item.name not in _NOT_FLAGS and hasattr(self, item.name)
        }
        keyword = getattr(self.distribution, "luthier", None)
        try:
            table = keyword if keyword is not None else read_table(Path.cwd())
            origin = "setup(luthier=…)" if keyword is not None else "pyproject.toml"
            settings = load_settings(table or {}, table_origin=origin, flags=flags, config=config_settings)
        except LuthierError as problem:
            raise OptionError(str(problem)) from problem
        self.settings = dataclasses.replace(
            settings,
            package=settings.package or self._only_package(),
            verbose=settings.verbose or bool(self.show_settings),
        )

    def _only_package(self) -> str:
        packages = sorted(self.distribution.packages or [])
        build_py: Any = self.get_finalized_command("build_py")
        top = outermost(packages, lambda name: Path(build_py.get_package_dir(name)))
        if len(top) != 1:
            raise OptionError(
                "the device modules' package is not clear: set `package` in [tool.luthier]; "
                f"the project has {', '.join(packages) or 'no packages'}"
            )
        return top[0]

    def _package_folder(self) -> Path:
        build_py: Any = self.get_finalized_command("build_py")
        return Path(build_py.get_package_dir(self.settings.package))

    def _built_folder(self) -> Path:
        return Path(self.build_lib or "build/lib", *self.settings.package.split("."))

    def run(self) -> None:
        """Build the device modules (called by setuptools)."""
        from luthier.module.packages import RECORD

        from luthier_build.editable import for_first_targets, write_record
        from luthier_build.package import compile_tool

        into_sources = self.inplace or self.editable_mode
        destination = self._package_folder() if into_sources else self._built_folder()
        try:
            # In an editable install, other targets are compiled when they are first used.
            on_demand = self.editable_mode and self.settings.editable_rebuild
            chosen = for_first_targets(self.settings) if on_demand else self.settings
            built = compile_tool(chosen, project=Path.cwd(), destination=destination, report=self._report)
            if into_sources:
                keyword = getattr(self.distribution, "luthier", None)
                write_record(destination, Path.cwd(), self.settings, built, keyword)
            else:  # an installed package does not follow sources, even if the record was copied as a data file
                (destination / RECORD).unlink(missing_ok=True)
        except LuthierError as problem:
            raise CompileError(str(problem)) from problem

    def _report(self, text: str) -> None:
        self.announce(text, logging.INFO)

    def get_source_files(self) -> list[str]:
        """Return the files for the source distribution."""
        from luthier_build.package import source_files

        try:
            return source_files(self.settings, Path.cwd())
        except LuthierError as problem:
            raise OptionError(str(problem)) from problem

    def get_outputs(self) -> list[str]:
        """Return the artefacts' paths in a regular build."""
        from luthier_build.package import artefact_names

        folder = self._built_folder()
        return [str(folder / name) for module in self.settings.modules for name in artefact_names(module)]

    def get_output_mapping(self) -> dict[str, str]:
        """Return artefact -> path in the source tree; empty unless it was built there."""
        if not (self.inplace or self.editable_mode):
            return {}
        folder = self._package_folder()
        return {output: str(folder / Path(output).name) for output in self.get_outputs()}
