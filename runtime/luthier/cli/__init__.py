"""The `luthier` command. Each sub-command is one module of this package, imported only when it is called."""
