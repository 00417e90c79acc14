"""Questions that no source answers: a kernel that depends on one is in error (`layout.FAULT_OPEN`)."""

from __future__ import annotations

SCALE = "a block scale that is no power of two: whether the whole number or its exponent counts is not documented"
LANES_OFF = "some lanes are off: what it does then is not documented"
WIDTH = "a group of lanes whose width is no power of two up to the wave's size: what is taken then is not documented"

BANKS = "a block of registers that passes a multiple of v256: which come then is not documented"
CLUSTER = "a load for other work-groups of a cluster, and launches here have no clusters"
OUTSIDE_LDS = "LDS beyond its end, of a copy between memory and LDS: what is copied then is not documented"
UNDERFLOW = "an arrival of more than an LDS barrier waits for: what is pending then is not documented"
NO_BARRIER = "a named barrier that the kernel descriptor does not allocate: which one is taken is not documented"
NO_MEMBERS = "a named barrier of which nobody has said how many wait: what opens it then is not documented"
TENSOR = "a tensor descriptor whose fields do not go together: what is copied then is not documented"
TENSOR_STEPS = "a tile that moves through a tensor whose dimensions overlap: where its bounds are is not documented"
IMAGE = "an image with levels, a first layer, compression or another geometry than the instruction's: not modelled"
TILES = "an image in tiles of another kind than ROCr makes for this processor: not modelled"
IMAGE_PITCH = "an image whose rows are nearer than its width, or in tiles not next to each other: not documented"
SAMPLER = "a sampler that filters integers, or has more than ROCr's do: not modelled"
BEYOND_IMAGE = (
    "a place outside of an image that has constants for components: what is read there the sources leave open"
)
SWIZZLE = "a buffer descriptor whose SWIZZLE_ENABLE is 2, which documents reserve"
ALONE = "whether a wave is the first at a barrier that is none, as in work-groups of one wave: the sources differ"

QUESTIONS = (
    *(SCALE, LANES_OFF, WIDTH, BANKS, CLUSTER, OUTSIDE_LDS, UNDERFLOW),
    *(NO_BARRIER, NO_MEMBERS, ALONE, TENSOR, TENSOR_STEPS),
    *(IMAGE, TILES, IMAGE_PITCH, SAMPLER, BEYOND_IMAGE, SWIZZLE),
)
"""In the order of their numbers."""
