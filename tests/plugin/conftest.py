"""LLVM releases as fixtures."""

from llvm_releases import manifest_of, release, release15, release22  # noqa: F401
