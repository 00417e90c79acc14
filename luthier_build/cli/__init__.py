"""Sub-commands of `luthier` that belong to the build side."""

from __future__ import annotations

COMMANDS = {
    "check-hooks": ("luthier_build.cli.check_hooks", "whether the hooks in built files can be spliced"),
    "build": ("luthier_build.cli.build", "compile device modules without pip"),
    "new": ("luthier_build.cli.new", "start a tool package"),
    "doctor": ("luthier_build.cli.doctor", "what this machine has and lacks"),
    "selftest": ("luthier_build.cli.selftest", "whether all of it works on this machine, from end to end"),
}
"""Sub-commands as in `luthier.cli.main.COMMANDS`, which takes these from entry-point group ``luthier.commands``."""
