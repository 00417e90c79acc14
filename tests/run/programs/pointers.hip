// Functions that the host hands from one kernel to another, and objects with virtual functions.
#include "check.h"

#include <cstdint>

typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t threefold(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t halved(uint32_t x) {
  while (x > 100)
    x /= 2;
  return x;
}
__device__ Function chosen = threefold, other = halved;
__device__ Function table[2];

struct Shape {
  __device__ virtual uint32_t area(uint32_t x) const { return x; }
};
struct Square : Shape {
  __device__ uint32_t area(uint32_t x) const override { return x * x; }
};
__device__ uint64_t room;

__global__ void applied(uint32_t *values, Function function) { values[threadIdx.x] = function(values[threadIdx.x]); }
__global__ void from_table(uint32_t *values) { values[threadIdx.x] = table[threadIdx.x & 1](values[threadIdx.x]); }
__global__ void told(Function *function) { *function = halved; }
__global__ void made() { new (&room) Square; }
__global__ void areas(uint32_t *values) { values[threadIdx.x] = ((Shape *)&room)->area(values[threadIdx.x]); }

int main() {
  std::vector<uint32_t> start(64);
  for (uint32_t i = 0; i < 64; ++i)
    start[i] = i * 10;
  Function functions[2], *place = nullptr, again = nullptr;
  HIP(hipMemcpyFromSymbol(&functions[0], HIP_SYMBOL(chosen), sizeof(Function)));
  HIP(hipMemcpyFromSymbol(&functions[1], HIP_SYMBOL(other), sizeof(Function)));
  HIP(hipMalloc((void **)&place, sizeof(Function)));
  told<<<1, 1>>>(place);
  HIP(hipMemcpy(&again, place, sizeof(Function), hipMemcpyDeviceToHost));
  EXPECT(again == functions[1]);
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), functions, sizeof functions));
  uint32_t *values = on_device(start);
  applied<<<1, 64>>>(values, functions[0]);
  EXPECT(on_host(values, 64)[7] == 211);
  from_table<<<1, 64>>>(values);
  EXPECT(on_host(values, 64)[7] == 52);
  EXPECT(on_host(values, 64)[6] == 544);
  made<<<1, 1>>>();
  areas<<<1, 64>>>(values);
  EXPECT(on_host(values, 64)[7] == 52 * 52);
  std::puts("pointers");
}
