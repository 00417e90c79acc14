// A kernel that follows pointers in memory, with a variable of the device that the host has set.
#include "check.h"

struct Node {
  Node *next;
  int value;
};

__device__ int offset = 3;
__device__ int visited = 0;

__global__ void walk(Node *const *heads, int *sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  int sum = 0;
  for (Node *node = heads[i]; node; node = node->next) {
    sum += node->value + offset;
    node->value = 0;
  }
  sums[i] = sum;
  atomicAdd(&visited, 1);
}

__global__ void add(int *values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    values[i] += offset;
}

int main() {
  const int lists = 128, length = 5;
  Node *nodes;
  HIP(hipMalloc(&nodes, lists * length * sizeof(Node)));
  std::vector<Node> made(lists * length);
  std::vector<Node *> heads(lists);
  for (int list = 0; list < lists; ++list) {
    heads[list] = nodes + list * length;
    for (int at = 0; at < length; ++at)
      made[list * length + at] = {at + 1 < length ? heads[list] + at + 1 : nullptr, list + at};
  }
  HIP(hipMemcpy(nodes, made.data(), made.size() * sizeof(Node), hipMemcpyHostToDevice));
  const int seven = 7;
  HIP(hipMemcpyToSymbol(HIP_SYMBOL(offset), &seven, sizeof seven));
  int *sums = on_device(std::vector<int>(lists));
  walk<<<2, 64>>>(on_device(heads), sums, lists);
  const auto found = on_host(sums, lists);
  for (int list = 0; list < lists; ++list)
    EXPECT(found[list] == length * (list + 7) + 10);
  add<<<2, 64>>>(sums, lists);
  EXPECT(on_host(sums, lists)[1] == found[1] + 7);
  std::puts("walked");
}
