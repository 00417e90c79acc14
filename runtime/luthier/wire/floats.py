"""Kinds of floating-point numbers, as bits in messages and in what native code is given."""

FLOAT_NAN, FLOAT_INFINITY, FLOAT_DENORMAL, FLOAT_ZERO = 1, 2, 4, 8
