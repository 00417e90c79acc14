"""The SCons tool of Luthier under a name that SCons finds: `Environment(tools=["default", "luthier_device"])`.

Copy or link the folder `site_scons` beside an SConstruct; the work is done by the installed package.
"""

from luthier_build.scons import exists, generate

__all__ = ["exists", "generate"]
