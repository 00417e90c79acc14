"""Uses JAX: kernels that XLA makes of a function and of its derivative, sorts, and rocBLAS's products. A small network
learns; the same steps in NumPy give the same weights. Each part is named when it was right."""

import jax
import numpy as np
from jax import numpy as jnp

STEPS, RATE = 20, 0.05

random = np.random.default_rng(1)
inputs, hidden, outputs = (random.random(shape, dtype=np.float32) - 0.5 for shape in ((32, 8), (8, 16), (16, 1)))
wanted = np.sin(inputs.sum(axis=1, keepdims=True))


def loss(weights):
    """Return the mean square of what the network is wrong by."""
    return jnp.mean((jnp.tanh(inputs @ weights[0]) @ weights[1] - wanted) ** 2)


def learn_on_the_host(first, second):
    """Return the weights after as many steps, with the derivative by hand."""
    for _ in range(STEPS):
        inner = np.tanh(inputs @ first)
        wrong = 2 * (inner @ second - wanted) / len(inputs)
        first, second = (
            first - RATE * inputs.T @ (wrong @ second.T * (1 - inner**2)),
            second - RATE * inner.T @ wrong,
        )
    return first, second


(device,) = jax.devices()
assert device.platform == "gpu"
step = jax.jit(lambda weights: jax.tree.map(lambda old, slope: old - RATE * slope, weights, jax.grad(loss)(weights)))
weights = (jnp.asarray(hidden), jnp.asarray(outputs))
for _ in range(STEPS):
    weights = step(weights)
for actual, expected in zip(weights, learn_on_the_host(hidden, outputs), strict=True):
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)
print("learned")
numbers = random.random(4096, dtype=np.float32)
np.testing.assert_array_equal(jnp.sort(numbers), np.sort(numbers))
print("sorted")
np.testing.assert_allclose(jnp.cumsum(numbers)[-1], numbers.sum(), rtol=1e-4)
print("summed")
