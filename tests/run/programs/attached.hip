// What ROCm's debugger attaches to: waves with known registers and LDS, in a loop that only a debugger ends.
#include <cstdio>
#include <cstring>

#include "check.h"

extern "C" __global__ void held(int *out) {
    __shared__ int tile[128];
    int lane = threadIdx.x, index = blockIdx.x * blockDim.x + lane, end = 0, sum = 0;
    tile[lane] = 3 * lane;
    __syncthreads();
    asm volatile("s_mov_b32 s40, 0x600d\n"
                 "s_mov_b32 s41, 0\n"
                 "s_mov_b32 s42, 0\n"
                 "v_lshlrev_b32 v40, 1, %2\n"
                 "v_accvgpr_write_b32 a3, v40\n"
                 "1:\n"
                 "s_add_u32 s41, s41, 1\n"
                 "v_add_u32 v41, 5, v40\n"
                 "s_cmp_lg_u32 s42, 0\n"
                 "s_cbranch_scc0 1b\n"
                 "v_mov_b32 %0, s42\n"
                 "v_mov_b32 %1, v40\n"
                 : "=v"(end), "=v"(sum)
                 : "v"(lane)
                 : "s40", "s41", "s42", "v40", "v41", "a3", "scc");
    out[index] = 1000 * end + sum + tile[127 - lane];
}

int main() {
    const int groups = 2, items = 128, count = groups * items;
    int host[count], *out = nullptr;
    HIP(hipMalloc(&out, sizeof host));
    held<<<groups, items>>>(out);
    std::puts("launched");
    std::fflush(stdout);
    HIP(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    for (int i = 0; i < count; i++) {
        int lane = i % items;
        if (host[i] != 7000 + 2 * lane + (i == 5 ? 100 : 0) + 3 * (items - 1 - lane)) {
            std::printf("wrong at %d: %d\n", i, host[i]);
            return 1;
        }
    }
    std::puts("right");
    return 0;
}
