// What debuggers are tried on: variables in registers, scratch and LDS, calls that are inlined and one that is not.
#include "check.h"

__device__ __attribute__((noinline)) int triple(int value) {
    int tripled = value * 3; // in triple
    return tripled + 1;
}

__device__ int twice(int value) {
    int doubled = value * 2; // in twice
    return doubled;
}

extern "C" __global__ void sums(const int *in, int *out, int n) {
    __shared__ int tile[64];
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= n) {
        return;
    }
    int total = 0;
    for (int step = 0; step < 3; step++) {
        total += twice(in[index]) + step; // in the loop
    }
    long long wide = (1ll << 40) + total;
    tile[threadIdx.x] = total; // fills the tile
    __syncthreads();
    int other = tile[63 - threadIdx.x];
    out[index] = triple(total) + other + (int)(wide >> 40); // the result
}

int main() {
    const int n = 128;
    int host[n], *in = nullptr, *out = nullptr;
    for (int i = 0; i < n; i++) {
        host[i] = i;
    }
    HIP(hipMalloc(&in, sizeof host));
    HIP(hipMalloc(&out, sizeof host));
    HIP(hipMemcpy(in, host, sizeof host, hipMemcpyHostToDevice));
    sums<<<2, 64>>>(in, out, n);
    HIP(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        int total = 6 * i + 3, mirrored = i / 64 * 64 + 63 - i % 64;
        if (host[i] != 3 * total + 1 + 6 * mirrored + 3 + 1) {
            return 1;
        }
    }
    return 0;
}
