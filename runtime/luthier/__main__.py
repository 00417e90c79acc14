"""`python -m luthier`: the command, also where its script is not on the path."""

import sys

from luthier.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
