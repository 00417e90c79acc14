"""Build side of Luthier: device toolchains, compilation of hooks, packaging of tools."""
