"""Sub-commands of `luthier` that belong to the build package."""

from __future__ import annotations

COMMANDS = {
    "check-hooks": ("luthier_build.cli.check_hooks", "check that the hooks in built files can be spliced"),
    "build": ("luthier_build.cli.build", "compile device modules without pip"),
    "new": ("luthier_build.cli.new", "create a tool package"),
    "doctor": ("luthier_build.cli.doctor", "report what this machine has and lacks"),
    "selftest": ("luthier_build.cli.selftest", "test Luthier on this machine from end to end"),
}
"""Sub-commands as in `luthier.cli.main.COMMANDS`, loaded from the entry-point group ``luthier.commands``."""
