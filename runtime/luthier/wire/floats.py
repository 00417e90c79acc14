"""Classes of floating-point numbers, as bits in messages and in parameters of native code."""

FLOAT_NAN, FLOAT_INFINITY, FLOAT_DENORMAL, FLOAT_ZERO = 1, 2, 4, 8
