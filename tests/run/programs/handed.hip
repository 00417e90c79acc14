// What is copied to the host of memory that nobody has written, in several ways.
#include "check.h"

#include <cstring>

constexpr int kCount = 256, kWritten = 200;
struct Padded {
  char small;
  int number;
};

__global__ void fill(int *out, int count) {
  if (int(threadIdx.x) < count)
    out[threadIdx.x] = threadIdx.x;
}

__global__ void second_bytes(const int *in, int *out) { out[threadIdx.x] = in[threadIdx.x] & 0xFF00; }

__global__ void structs(Padded *out) {
  out[threadIdx.x].small = 1;
  out[threadIdx.x].number = threadIdx.x;
}

int main(int, char **argv) {
  const char *what = argv[1];
  const auto is = [&](const char *other) { return !std::strcmp(what, other); };
  const size_t size = kCount * sizeof(Padded);
  int *in, *out;
  void *host;
  hipStream_t stream;
  HIP(hipMalloc(&in, size));
  HIP(hipMalloc(&out, size));
  HIP(hipHostMalloc(&host, size, 0));
  HIP(hipStreamCreate(&stream));
  if (is("computed")) {
    second_bytes<<<1, kCount, 0, stream>>>(in, out);
  } else if (is("structs")) {
    structs<<<1, kCount, 0, stream>>>(reinterpret_cast<Padded *>(out));
  } else {
    fill<<<1, kCount, 0, stream>>>(out, is("written") ? kCount : kWritten);
  }
  const size_t copied = is("structs") ? size : (is("part") ? kWritten : kCount) * sizeof(int);
  if (is("stream") || is("device")) {
    HIP(hipMemcpyAsync(host, out, copied, hipMemcpyDeviceToHost, stream)); // line: later
    HIP(is("stream") ? hipStreamSynchronize(stream) : hipDeviceSynchronize());
  } else if (is("inner")) {
    HIP(hipStreamSynchronize(stream));
    HIP(hipMemcpy(in, out, copied, hipMemcpyDeviceToDevice));
  } else {
    HIP(hipStreamSynchronize(stream));
    HIP(hipMemcpy(host, out, copied, hipMemcpyDeviceToHost)); // line: now
  }
  HIP(hipDeviceSynchronize());
  HIP(hipStreamDestroy(stream));
  HIP(hipHostFree(host));
  HIP(hipFree(in));
  HIP(hipFree(out));
  std::puts("done");
}
