"""A PEP 517 backend: setuptools' own, which also understands ``-C luthier.NAME=VALUE``.

setuptools keeps configuration settings from its extensions; a project whose ``build-backend`` is
``luthier_build.backend`` gets them, and libclang in isolated builds. All else is the same as with
``setuptools.build_meta``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from luthier_build.setuptools_version import why_too_old

if _problem := why_too_old():
    raise SystemExit(f"error: {_problem}")  # frontends show it; of other exceptions, the traceback

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
    """Return what setuptools requires, and Luthier (PEP 517)."""
    with _given(config_settings) as rest:
        return [*build_meta.get_requires_for_build_wheel(rest), *_REQUIRES]


def get_requires_for_build_editable(config_settings: Config = None) -> list[str]:
    """Return what setuptools requires, and Luthier (PEP 660)."""
    with _given(config_settings) as rest:
        return [*build_meta.get_requires_for_build_editable(rest), *_REQUIRES]


def get_requires_for_build_sdist(config_settings: Config = None) -> list[str]:
    """Return what setuptools requires (PEP 517)."""
    with _given(config_settings) as rest:
        return list(build_meta.get_requires_for_build_sdist(rest))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Config = None) -> str:
    """Prepare the metadata, and return their folder (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.prepare_metadata_for_build_wheel(metadata_directory, rest))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Config = None) -> str:
    """Prepare the metadata, and return their folder (PEP 660)."""
    with _given(config_settings) as rest:
        return str(build_meta.prepare_metadata_for_build_editable(metadata_directory, rest))


def build_wheel(wheel_directory: str, config_settings: Config = None, metadata_directory: str | None = None) -> str:
    """Build the device modules and the wheel around them; its file name (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_wheel(wheel_directory, rest, metadata_directory))


def build_editable(wheel_directory: str, config_settings: Config = None, metadata_directory: str | None = None) -> str:
    """Build the device modules and an editable wheel; its file name (PEP 660)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_editable(wheel_directory, rest, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Config = None) -> str:
    """Build the source distribution; its file name (PEP 517)."""
    with _given(config_settings) as rest:
        return str(build_meta.build_sdist(sdist_directory, rest))
