"""Luthier's SCons tool under a name that SCons finds: `Environment(tools=["default", "luthier_device"])`.

Copy or link the folder `site_scons` next to an SConstruct; the implementation is in the installed package.
"""

from luthier_build.scons import exists, generate

__all__ = ["exists", "generate"]
