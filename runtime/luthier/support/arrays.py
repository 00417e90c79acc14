"""Arrays of counts in records that msgspec encodes: hooks for its functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def listed(value: Any) -> list[Any]:
    """Return an array as a list: an ``enc_hook``."""
    values: list[Any] = value.tolist()
    return values


def counts_array(type: Any, value: Any) -> NDArray[np.int64]:
    """Return an array of counts from its list, or list of lists: a ``dec_hook``.

    Raises:
        ValueError: it is none, or its rows differ in length.
    """
    import numpy as np

    return np.array(msgspec.convert(value, list[_Count | list[_Count]]), np.int64)
