"""A PEP 517 backend that extends setuptools' backend with ``-C luthier.NAME=VALUE``.

setuptools does not pass configuration settings to its extensions. With ``luthier_build.backend`` as ``build-backend``,
a project gets them, and libclang in isolated builds. Everything else is the same as with ``setuptools.build_meta``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from luthier_build.setuptools_version import why_too_old

if _problem := why_too_old():
    raise SystemExit(f"error: {_problem}")  # frontends show only this text; for other exceptions, the traceback

from setuptools import build_meta

from luthier_build import setuptools_plugin

Config = Mapping[str, object] | None
_REQUIRES = ["libclang>=18.1"]


@contextlib.contextmanager
def _given(settings: Config) -> Iterator[dict[str, object]]:
    """Hand our settings to the extension, and yield the others for setuptools."""
    own = {key: value for key, value in (settings or {}).items() if key.startswith("luthier.")}
    setuptools_plugin.config_settings = own
    try:
        yield {key: value for key, value in (settings or {}).items() if key not in own}
    finally:
        setuptools_plugin.config_settings = {}


def get_requires_for_build_wheel(config_settings: Config = None) -> list[str]:
    """Return the requirements of setuptools and Luthier (PEP 517)."""
    with _given(config_settings) as rest:
        return [*build_meta.get_requires_for_build_wheel(rest), *_REQUIRES]


def get_requires_for_build_editable(config_settings: Config = None) -> list[str]:
    """Return the requirements of setuptools and Luthier (PEP 660)."""
    with _given(config_settings) as rest:
        return [*build_meta.get_requires_for_build_editable(rest), *_REQUIRES]


def get_requires_for_build_sdist(config_settings: Config = None) -> list[str]:
    """Return the requirements of setuptools (PEP 517)."""
    with _given(config_settings) as rest:
        return list(build_meta.get_requires_for_build_sdist(rest))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Config = None) -> str:
    """Prepare the metadata and return its folder (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.prepare_metadata_for_build_wheel(metadata_directory, rest))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Config = None) -> str:
    """Prepare the metadata and return its folder (PEP 660)."""
    with _given(config_settings) as rest:
        return str(build_meta.prepare_metadata_for_build_editable(metadata_directory, rest))


def build_wheel(wheel_directory: str, config_settings: Config = None, metadata_directory: str | None = None) -> str:
    """Build a wheel with the device modules and return its file name (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_wheel(wheel_directory, rest, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Config = None, metadata_directory: str | None = None) -> str:
    """Build the device modules and an editable wheel; return its file name (PEP 660)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_editable(wheel_directory, rest, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Config = None) -> str:
    """Build the source distribution and return its file name (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_sdist(sdist_directory, rest))
