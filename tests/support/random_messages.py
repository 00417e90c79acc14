"""Random messages of any declaration, with values that are likely to be handled wrongly."""

from __future__ import annotations

import random
from typing import Annotated, Any, get_args, get_origin

from luthier.wire.structures import File, ForeignText, Message, PathText

NUMBERS = [0, 1, 127, 128, 255, 256, (1 << 16) - 1, 1 << 16, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1]
SIZES = [0, 1, 15, 16, 31, 32, 255, 256]
"""Bytes and elements about which MessagePack has other forms."""


def random_message(declared: type[Message], chance: random.Random) -> Any:
    """Return a message; its files are the descriptor 0."""
    return declared(*(_value(type, chance) for type in declared.types().values()))


def _value(type: Any, chance: random.Random) -> Any:
    if type is int:
        return chance.choice(NUMBERS)
    if type is bool:
        return chance.random() < 0.5
    if type is File:
        return File(0)
    if type is str:
        return "".join(chance.choice("a\0ü\N{SNOWMAN}") for _ in range(chance.choice(SIZES)))
    if type in (bytes, ForeignText, PathText):
        return type(chance.randbytes(chance.choice(SIZES)))
    if get_origin(type) is Annotated:
        return chance.randbytes(get_args(type)[1].dtype().itemsize * chance.choice(SIZES))
    if get_origin(type) is tuple:
        (item, _) = get_args(type)
        return tuple(_value(item, chance) for _ in range(chance.choice(SIZES[:4]) if item in (int, str) else 2))
    return random_message(type, chance)
