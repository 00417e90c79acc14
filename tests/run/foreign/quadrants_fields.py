"""Compute with fields by Quadrants, a fork of Taichi, on a GPU, and compare with NumPy."""

import numpy as np
import quadrants as qd

SIZE = 64
qd.init(arch=qd.amdgpu)
first, second, product = (qd.field(qd.f32, (SIZE, SIZE)) for _ in range(3))
total = qd.field(qd.i32, ())


@qd.kernel
def multiply():
    """Multiply two matrices, and add up whole numbers atomically."""
    for row, column in product:
        for middle in range(SIZE):
            product[row, column] += first[row, middle] * second[middle, column]
        total[None] += row


a, b = np.random.default_rng(7).standard_normal((2, SIZE, SIZE)).astype(np.float32)
first.from_numpy(a)
second.from_numpy(b)
multiply()
np.testing.assert_allclose(product.to_numpy(), a @ b, atol=1e-4)
assert total[None] == SIZE * sum(range(SIZE))
print("equal to NumPy's")
