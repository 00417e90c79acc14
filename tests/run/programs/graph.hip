// Work captured from a stream, launched as a graph several times.
#include "check.h"

__global__ void scale(int *values, int factor) { values[threadIdx.x] *= factor; }
__global__ void shift(int *values, int amount) { values[threadIdx.x] += amount; }

int main() {
  std::vector<int> values(64, 1);
  int *device = on_device(values);
  hipStream_t stream;
  hipGraph_t graph;
  hipGraphExec_t work;
  HIP(hipStreamCreate(&stream));
  HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  scale<<<1, 64, 0, stream>>>(device, 2);
  shift<<<1, 64, 0, stream>>>(device, 3);
  HIP(hipStreamEndCapture(stream, &graph));
  HIP(hipGraphInstantiate(&work, graph, nullptr, nullptr, 0));
  for (int turn = 0; turn < 5; ++turn)
    HIP(hipGraphLaunch(work, stream));
  HIP(hipStreamSynchronize(stream));
  int expected = 1;
  for (int turn = 0; turn < 5; ++turn)
    expected = expected * 2 + 3;
  for (int value : on_host(device, 64))
    EXPECT(value == expected);
  HIP(hipGraphExecDestroy(work));
  HIP(hipGraphDestroy(graph));
  std::printf("graph %d\n", expected);
}
