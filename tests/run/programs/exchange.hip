// Ballots, votes, shuffles of a wave; a kernel that waits for the host.
#include "check.h"

#include <thread>

__global__ void vote(unsigned long long *out, int *sums) {
  const int lane = threadIdx.x % warpSize;
  const unsigned long long odd = __ballot(lane % 2), none = __ballot(0);
  const int any = __any(lane == 3), all = __all(lane < 3);
  int value = lane;
  for (int step = warpSize / 2; step > 0; step /= 2)
    value += __shfl_xor(value, step);
  if (threadIdx.x == 0)
    out[0] = odd, out[1] = none, out[2] = any != 0, out[3] = all != 0;
  sums[threadIdx.x] = value;
}

__global__ void wait_for_host(volatile int *flag, int *answer) {
  while (*flag == 0)
    __builtin_amdgcn_s_sleep(1);
  *answer = *flag * 2;
  __threadfence_system();
}

int main() {
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  const int lanes = properties.warpSize;
  auto *out = on_device(std::vector<unsigned long long>(4));
  int *sums = on_device(std::vector<int>(lanes));
  vote<<<1, lanes>>>(out, sums);
  const auto votes = on_host(out, 4);
  EXPECT(votes[0] == (lanes == 64 ? 0xAAAAAAAAAAAAAAAA : 0xAAAAAAAA) && votes[1] == 0);
  EXPECT(votes[2] == 1 && votes[3] == 0);
  for (int sum : on_host(sums, lanes))
    EXPECT(sum == lanes * (lanes - 1) / 2);
  int *flag = nullptr, *answer = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&flag), sizeof(int), hipHostMallocCoherent));
  HIP(hipHostMalloc(reinterpret_cast<void **>(&answer), sizeof(int), hipHostMallocCoherent));
  *flag = *answer = 0;
  wait_for_host<<<1, 1>>>(flag, answer);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT(*static_cast<volatile int *>(answer) == 0);
  *static_cast<volatile int *>(flag) = 21;
  HIP(hipDeviceSynchronize());
  EXPECT(*answer == 42);
  std::puts("exchange");
}
