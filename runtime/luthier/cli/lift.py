"""``luthier lift FILE [--kernel K] [--target T] [--json] [--instructions] [--registers]``."""

from __future__ import annotations

import argparse
import json

from luthier.lifting import lift
from luthier.lifting.listing import as_data, as_text
from luthier.objects import load_object


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="code object, offload bundle, or a host program or archive that holds one")
    parser.add_argument("--kernel", "-k", action="append", help="kernel to lift; repeatable; all kernels if not given")
    parser.add_argument("--target", help="which code object, where the file holds several, e.g. gfx942")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one entry a kernel")
    parser.add_argument("--instructions", action="store_true", help="list the instructions of every block")
    parser.add_argument("--registers", action="store_true", help="name live registers instead of counting them")


def run(args: argparse.Namespace) -> int:
    code_object = load_object(args.file, args.target)
    lifted = [lift(code_object, kernel) for kernel in args.kernel or code_object.kernels]
    if args.json:
        print(json.dumps([as_data(one) for one in lifted], indent=1))
        return 0
    for one in lifted:
        for line in as_text(one, instructions=args.instructions, registers=args.registers):
            print(line)
    return 0
