"""Uses CuPy: its own kernels, compiled when they are called, a raw one, rocThrust's sort, rocBLAS, rocFFT, rocRAND and
rocSOLVER. What it computes is compared with NumPy's, and each part is named when it was right."""

import cupy
import numpy as np

TWICE = 'extern "C" __global__ void twice(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }'

host = np.random.default_rng(1).random((64, 64), dtype=np.float32)
device = cupy.asarray(host)


def check(name, actual, expected):
    """Name a part that is right; anything else ends the program."""
    np.testing.assert_allclose(cupy.asnumpy(actual), expected, rtol=1e-3, atol=1e-3, err_msg=name)
    print(name)


check("sum", device.sum(axis=0), host.sum(axis=0))
check("elements", cupy.sqrt(device) * 2 + cupy.sin(device), np.sqrt(host) * 2 + np.sin(host))
check("sort", cupy.sort(device.ravel()), np.sort(host.ravel()))
twice = device.copy()
cupy.RawKernel(TWICE, "twice")((64,), (64,), (twice,))
check("raw kernel", twice, 2 * host)
check("product", device @ device, host @ host)
check("Fourier transform", cupy.fft.fft(device), np.fft.fft(host))
numbers = cupy.asnumpy(cupy.random.default_rng(3).random(10_000))
assert abs(numbers.mean() - 0.5) < 0.02
assert 0 <= numbers.min() < numbers.max() < 1
print("random numbers")
check("equations", device @ cupy.linalg.solve(device, device[:, 0]), host[:, 0])
