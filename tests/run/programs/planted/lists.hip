// Linked lists: addresses that are read from memory.
#include "check.h"

struct Node {
  int value;
  const Node *next;
};

__global__ void link(Node *nodes, int n, int lists) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    nodes[/*index*/ i] = {i, i + lists < n ? nodes + i + lists : nullptr}; // uses nodes
}

__global__ void sums(const Node *nodes, long *out) {
  long sum = 0;
  for (const Node *at = nodes + threadIdx.x; at; at = at->next) // uses nodes; may fault
    sum += at->value; // uses nodes; may fault
  out[/*index*/ threadIdx.x] = sum; // uses out
}

int main() {
  const int n = 240, lists = 48;
  Node *nodes = nullptr;
  long *out = nullptr;
  HIP(hipMalloc(&nodes, /*size nodes*/ n * sizeof(Node)));
  HIP(hipMalloc(&out, /*size out*/ lists * sizeof(long)));
  link<<<4, 64>>>(nodes, n, lists);
  HIP(hipDeviceSynchronize());
  /*early nodes*/
  /*early out*/
  sums<<<1, lists>>>(nodes, out);
  HIP(hipDeviceSynchronize());
  /*freed nodes*/ HIP(hipFree(nodes));
  /*freed out*/ HIP(hipFree(out));
}
