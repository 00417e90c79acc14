// MPI: each rank adds on its own device, numbered by its rank; the ranks' sums go round by the host.
#include "check.h"

#include <mpi.h>

__global__ void add(int *values, int amount) { values[blockIdx.x * blockDim.x + threadIdx.x] += amount; }

int main(int count, char **arguments) {
  int rank = 0, ranks = 0, devices = 0;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  HIP(hipGetDeviceCount(&devices));
  HIP(hipSetDevice(rank % devices));
  int *values = on_device(std::vector<int>(256));
  // Each rank has a number of launches of its own, so that their counts differ.
  for (int turn = 0; turn <= rank; ++turn)
    add<<<4, 64>>>(values, 10);
  int mine = 0, all = 0;
  for (int value : on_host(values, 256))
    mine += value;
  EXPECT(mine == 2560 * (rank + 1));
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(all == 2560 * ranks * (ranks + 1) / 2);
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, rank % devices));
  std::printf("rank %d of %d: %s\n", rank, ranks, properties.gcnArchName);
  MPI_Finalize();
}
