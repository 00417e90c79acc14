#include "hooks.hip"

__global__ void kernel(int *output) { output[threadIdx.x] = 1; }

void run() { kernel<<<1, 64>>>(nullptr); }
