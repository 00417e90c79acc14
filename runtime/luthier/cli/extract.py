"""`luthier extract`: write the code objects of any container to files."""

from __future__ import annotations

import argparse
import os

from luthier.cli.common import say_fitting
from luthier.cli.selection import add_object_arguments, searched
from luthier.errors import LuthierError, TargetError
from luthier.objects import DeviceImage, choose_images, find_images
from luthier.objects.container import only_image
from luthier.support.files import is_same_file, write_atomically
from luthier.terminal import visible


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_object_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="OUT",
        help="file for one code object, or folder for several",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        LuthierError: there are several and OUT is not a folder, or a file cannot be written.
    """
    source, name, _ = searched(args.file)
    if args.target or args.kernel:
        images = choose_images(source, name, target=args.target, object=args.object, kernels=args.kernel)
    else:  # all, including those for unknown processors
        images = find_images(source, name, object=args.object)
    if args.output.endswith(os.sep) or os.path.isdir(args.output):
        try:
            os.makedirs(args.output, exist_ok=True)
        except OSError as problem:
            raise LuthierError(f"cannot create {args.output}: {problem.strerror or problem}") from problem
        for image in images:
            _write(image, os.path.join(args.output, f"{image.number}-{_processor(image)}.hsaco"))
        return 0
    image = only_image(images, name, ", or give a folder as OUT")
    if is_same_file(args.file, args.output):
        raise LuthierError("OUT and FILE are the same file", object=args.file)
    _write(image, args.output)
    return 0


def _processor(image: DeviceImage) -> str:
    """Return an image's target, for a file name."""
    try:
        return str(image.target).replace(":", "-")
    except TargetError:
        return "unsupported"


def _write(image: DeviceImage, path: str) -> None:
    write_atomically(path, bytes(image.data))
    say_fitting(f"{visible(path)}: {visible(image.name)}, {_processor(image)}, {len(image.data):,} bytes")
