"""Questions that no source answers: a wave that depends on one faults (`layout.FAULT_OPEN`)."""

from __future__ import annotations

SCALE = "a block scale is not a power of two: whether hardware uses the number or its exponent is not documented"
LANES_OFF = "some lanes are off: the result is not documented"
WIDTH = "the width of a lane group is not a power of two up to the wave size: the result is not documented"

BANKS = "a register operand crosses a multiple of v256: which registers it names is not documented"
CLUSTER = "a load for other work-groups of a cluster: emulated launches have no clusters"
OUTSIDE_LDS = "a copy between memory and LDS runs beyond the end of LDS: what it copies is not documented"
UNDERFLOW = "more arrivals than an LDS barrier waits for: the pending count is not documented"
NO_BARRIER = "a named barrier that the kernel descriptor does not allocate: which barrier is used is not documented"
NO_MEMBERS = "a named barrier whose member count is not set: what opens it is not documented"
TENSOR = "the fields of a tensor descriptor contradict each other: what is copied is not documented"
TENSOR_STEPS = "a tile moves through a tensor whose dimensions overlap: its bounds are not documented"
IMAGE = "an image with levels, a first layer, compression or another geometry than the instruction's: not modelled"
TILES = "an image in tiles of another kind than ROCr makes for this processor: not modelled"
IMAGE_PITCH = "an image with a row pitch below its width, or in tiles that are not adjacent: not documented"
SAMPLER = "a sampler that filters integers, or uses fields that ROCr's samplers do not: not modelled"
BEYOND_IMAGE = "an access outside of an image with constant components: the value read is not documented"
SWIZZLE = "a buffer descriptor whose SWIZZLE_ENABLE is 2, which is reserved"
ALONE = "whether a wave is the first at a barrier without effect, as in work-groups of one wave: the sources differ"

QUESTIONS = (
    *(SCALE, LANES_OFF, WIDTH, BANKS, CLUSTER, OUTSIDE_LDS, UNDERFLOW),
    *(NO_BARRIER, NO_MEMBERS, ALONE, TENSOR, TENSOR_STEPS),
    *(IMAGE, TILES, IMAGE_PITCH, SAMPLER, BEYOND_IMAGE, SWIZZLE),
)
"""In the order of their numbers."""
