// Work-groups and grids in two and three dimensions, a tile in LDS.
#include "check.h"

__global__ void transpose(const double *in, double *out, int width, int height) {
  __shared__ double tile[16][17];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  if (x < width && y < height)
    tile[threadIdx.y][threadIdx.x] = in[/*index*/ y * width + x]; // around turned
  /*barrier turned*/ __syncthreads();
  x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
  if (x < height && y < width)
    out[/*index*/ y * height + x] = tile[threadIdx.x][threadIdx.y]; // around turned
}

__global__ void number(int *out) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
            z = blockIdx.z * blockDim.z + threadIdx.z;
  out[/*index*/ (z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] = x + 100 * y + 10000 * z;
}

int main() {
  const int width = 75, height = 50;
  std::vector<double> in(width * height);
  for (int i = 0; i < width * height; ++i)
    in[i] = 0.5 * i;
  double *out = on_device(in);
  transpose<<<dim3(5, 5), dim3(16, 16)>>>(on_device(in), out, width, height);
  const auto values = on_host(out, in.size());
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      EXPECT(values[x * height + y] == in[y * width + x]);
  const int nx = 3 * 5, ny = 2 * 7, nz = 4 * 3;
  int *numbers = on_device(std::vector<int>(nx * ny * nz));
  number<<<dim3(3, 2, 4), dim3(5, 7, 3)>>>(numbers);
  const auto found = on_host(numbers, nx * ny * nz);
  for (int i = 0; i < nx * ny * nz; ++i)
    EXPECT(found[i] == i % nx + 100 * (i / nx % ny) + 10000 * (i / nx / ny));
  std::puts("transposed");
}
