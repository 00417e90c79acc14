// RCCL: all-reduce, broadcast and all-gather of all devices; with an argument each has a process of its own.
#include "check.h"

#include <rccl/rccl.h>

#include <sys/wait.h>
#include <unistd.h>

#define RCCL(call)                                                                                                     \
  do {                                                                                                                 \
    const ncclResult_t status = (call);                                                                                \
    if (status != ncclSuccess) {                                                                                       \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(status));                           \
      std::exit(2);                                                                                                    \
    }                                                                                                                  \
  } while (0)

constexpr int size = 1000;

// One device with its buffers: `mine` is what it gives, `all` has room for what all of them give.
struct Rank {
  int number, count;
  ncclComm_t comm;
  hipStream_t stream;
  float *mine, *all;

  float value(int rank, int i) const { return (rank + 1) * 10000 + i; }

  void begin() {
    HIP(hipSetDevice(number));
    HIP(hipStreamCreate(&stream));
    std::vector<float> values(size);
    for (int i = 0; i < size; ++i)
      values[i] = value(number, i);
    mine = on_device(values);
    all = on_device(std::vector<float>(size * count));
  }

  std::vector<float> result(size_t length) {
    HIP(hipSetDevice(number));
    HIP(hipStreamSynchronize(stream));
    return on_host(all, length);
  }

  void check_sum() {
    const auto got = result(size);
    for (int i = 0; i < size; ++i) {
      float sum = 0;
      for (int rank = 0; rank < count; ++rank)
        sum += value(rank, i);
      EXPECT(got[i] == sum);
    }
  }

  void check_broadcast(int root) {
    const auto got = result(size);
    for (int i = 0; i < size; ++i)
      EXPECT(got[i] == value(root, i));
  }

  void check_gathered() {
    const auto got = result(size * count);
    for (int i = 0; i < size * count; ++i)
      EXPECT(got[i] == value(i / size, i % size));
  }

  void end() {
    HIP(hipSetDevice(number));
    RCCL(ncclCommDestroy(comm));
    HIP(hipFree(mine));
    HIP(hipFree(all));
  }
};

// The collective operations of those ranks that are in this process.
static void use(std::vector<Rank> &ranks) {
  const int root = ranks[0].count - 1;
  for (Rank &rank : ranks)
    rank.begin();
  RCCL(ncclGroupStart());
  for (Rank &rank : ranks)
    RCCL(ncclAllReduce(rank.mine, rank.all, size, ncclFloat, ncclSum, rank.comm, rank.stream));
  RCCL(ncclGroupEnd());
  for (Rank &rank : ranks)
    rank.check_sum();
  RCCL(ncclGroupStart());
  for (Rank &rank : ranks)
    RCCL(ncclBroadcast(rank.mine, rank.all, size, ncclFloat, root, rank.comm, rank.stream));
  RCCL(ncclGroupEnd());
  for (Rank &rank : ranks)
    rank.check_broadcast(root);
  RCCL(ncclGroupStart());
  for (Rank &rank : ranks)
    RCCL(ncclAllGather(rank.mine, rank.all, size, ncclFloat, rank.comm, rank.stream));
  RCCL(ncclGroupEnd());
  for (Rank &rank : ranks)
    rank.check_gathered();
  for (Rank &rank : ranks)
    rank.end();
}

// All devices in this process.
static void together() {
  int count = 0;
  HIP(hipGetDeviceCount(&count));
  std::vector<ncclComm_t> comms(count);
  RCCL(ncclCommInitAll(comms.data(), count, nullptr));
  std::vector<Rank> ranks;
  for (int number = 0; number < count; ++number)
    ranks.push_back({number, count, comms[number]});
  use(ranks);
  std::printf("%d devices in one process\n", count);
}

// A process for each device, forked before HIP is used; the first one makes the id that the others need.
static void apart(int count) {
  int ends[2];
  EXPECT(pipe(ends) == 0);
  for (int number = 0; number < count; ++number) {
    if (fork() != 0)
      continue;
    ncclUniqueId id;
    if (number == 0) {
      RCCL(ncclGetUniqueId(&id));
      for (int other = 1; other < count; ++other)
        EXPECT(write(ends[1], &id, sizeof id) == sizeof id);
    } else {
      EXPECT(read(ends[0], &id, sizeof id) == sizeof id);
    }
    HIP(hipSetDevice(number));
    Rank rank{number, count};
    RCCL(ncclCommInitRank(&rank.comm, count, id, number));
    std::vector<Rank> ranks{rank};
    use(ranks);
    std::exit(0);
  }
  for (int number = 0, status; number < count; ++number)
    EXPECT(wait(&status) > 0 && status == 0);
  std::printf("%d devices in %d processes\n", count, count);
}

int main(int given, char **arguments) {
  if (given == 2)
    apart(std::atoi(arguments[1]));
  else
    together();
}
