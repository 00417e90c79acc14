// A sparse matrix times a vector; breadth-first search, a launch a level.
#include "check.h"

#include <deque>

__global__ void multiply(const int *starts, const int *columns, const double *values, const double *x, double *y, int n) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n)
    return;
  double sum = 0;
  for (int i = starts[row]; i < starts[row + 1]; ++i)
    sum += values[i] * x[columns[i]];
  y[row] = sum;
}

__global__ void visit(const int *starts, const int *columns, int *levels, int level, int *more, int n) {
  const int node = blockIdx.x * blockDim.x + threadIdx.x;
  if (node >= n || levels[node] != level)
    return;
  for (int i = starts[node]; i < starts[node + 1]; ++i)
    if (atomicCAS(&levels[columns[i]], -1, level + 1) == -1)
      *more = 1;
}

int main() {
  const int n = 700;
  std::vector<int> starts{0}, columns;
  std::vector<double> values, x(n);
  unsigned state = 7;
  for (int row = 0; row < n; ++row) {
    x[row] = row % 13 - 5;
    for (int i = 0; i < row % 5 + 1; ++i) {
      state = state * 1664525 + 1013904223;
      columns.push_back((state >> 8) % n);
      values.push_back(int(state >> 20) % 9 - 4);
    }
    starts.push_back(columns.size());
  }
  int *dstarts = on_device(starts), *dcolumns = on_device(columns);
  double *y = on_device(x);
  multiply<<<(n + 63) / 64, 64>>>(dstarts, dcolumns, on_device(values), on_device(x), y, n);
  const auto product = on_host(y, n);
  for (int row = 0; row < n; ++row) {
    double sum = 0;
    for (int i = starts[row]; i < starts[row + 1]; ++i)
      sum += values[i] * x[columns[i]];
    EXPECT(product[row] == sum);
  }
  std::vector<int> levels(n, -1);
  levels[1] = 0;
  int *dlevels = on_device(levels), *more = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&more), sizeof(int), 0));
  int level = 0;
  do {
    *more = 0;
    visit<<<(n + 127) / 128, 128>>>(dstarts, dcolumns, dlevels, level++, more, n);
    HIP(hipDeviceSynchronize());
  } while (*more);
  std::deque<int> waiting{1};
  for (; !waiting.empty(); waiting.pop_front())
    for (int i = starts[waiting.front()]; i < starts[waiting.front() + 1]; ++i)
      if (levels[columns[i]] == -1) {
        levels[columns[i]] = levels[waiting.front()] + 1;
        waiting.push_back(columns[i]);
      }
  EXPECT(on_host(dlevels, n) == levels);
  std::puts("sparse");
}
