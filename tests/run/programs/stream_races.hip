// Kernels and copies on two streams that do not block each other: pairs that race, and pairs that something orders.
#include "check.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

constexpr int kItems = 256, kGroups = 4, kAll = kItems * kGroups;

__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void writes(int *to, int value) {
  for (int turn = 0; turn < 8; ++turn)
    to[place()] = value + turn; // line: writes
}

__global__ void sets(int *to) {
  to[place()] = 1; // line: sets
}

__global__ void reads(const int *from, int *sums) {
  sums[place()] += from[place()]; // line: reads
}

// The second quarter of the numbers becomes what the third one is.
__global__ void moves(int *to) {
  int *const own = to + kItems + place();
  own[0] = own[kItems]; // line: moves
}

__global__ void adds(int *to) {
  atomicAdd(&to[place()], 1); // line: adds
}

// Tells by a flag that its numbers are there, to the device or to the host, and goes on for a while.
__global__ void tells(int *to, int *flag, int *busy) {
  to[threadIdx.x] = threadIdx.x;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0)
    atomicExch_system(flag, 1);
  for (int turn = 0; turn < 1000; ++turn)
    atomicAdd(busy, turn);
}

__global__ void waits(const int *from, int *flag, int *sums) {
  if (threadIdx.x == 0)
    while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0)
      ;
  __syncthreads();
  sums[threadIdx.x] = from[threadIdx.x];
}

struct Setting {
  int *data = nullptr, *sums = nullptr, *others = nullptr, *flag = nullptr, *host = nullptr;
  hipStream_t first = nullptr, second = nullptr;
  hipEvent_t event = nullptr;

  Setting() {
    for (int **each : {&data, &sums, &others, &flag}) {
      HIP(hipMalloc(each, kAll * sizeof(int)));
      HIP(hipMemset(*each, 0, kAll * sizeof(int)));
    }
    HIP(hipHostMalloc(reinterpret_cast<void **>(&host), kAll * sizeof(int), 0));
    for (int i = 0; i < kAll; ++i)
      host[i] = 0;
    for (hipStream_t *each : {&first, &second})
      HIP(hipStreamCreateWithFlags(each, hipStreamNonBlocking));
    HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    writes<<<kGroups, kItems>>>(others, 0); // is compiled now
    HIP(hipDeviceSynchronize());
  }
  // Streams that are left would share a queue of the device with later ones, which orders them.
  ~Setting() {
    HIP(hipDeviceSynchronize());
    for (hipStream_t each : {first, second})
      HIP(hipStreamDestroy(each));
  }
};

static void write_first(Setting &s) { writes<<<kGroups, kItems, 0, s.first>>>(s.data, 1); }
static void write_second(Setting &s) { writes<<<kGroups, kItems, 0, s.second>>>(s.data, 100); }
static void read_second(Setting &s) { reads<<<kGroups, kItems, 0, s.second>>>(s.data, s.sums); }
// What was submitted is over then, which nobody has seen.
static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

// Nothing orders the two.
static bool race(const std::string &what, Setting &s) {
  const size_t size = kAll * sizeof(int);
  if (what == "write-write") {
    write_first(s);
    rest(); // stores at the very same time may look alike
    write_second(s);
  } else if (what == "write-read") {
    write_first(s);
    read_second(s);
  } else if (what == "read-write") {
    reads<<<kGroups, kItems, 0, s.first>>>(s.data, s.sums);
    write_second(s);
  } else if (what == "atomic-write") {
    adds<<<kGroups, kItems, 0, s.first>>>(s.data);
    write_second(s);
  } else if (what == "event-too-early") {
    HIP(hipEventRecord(s.event, s.first));
    write_first(s);
    HIP(hipStreamWaitEvent(s.second, s.event, 0));
    read_second(s);
  } else if (what == "copy-from") {
    write_first(s);
    HIP(hipMemcpyAsync(s.host, s.data, size, hipMemcpyDeviceToHost, s.second)); // line: copy-from
  } else if (what == "copy-before") {
    HIP(hipMemcpyAsync(s.data, s.host, size, hipMemcpyHostToDevice, s.first));
    write_first(s);
    HIP(hipMemcpyAsync(s.host, s.data, size, hipMemcpyDeviceToHost, s.second)); // line: copy-before
    HIP(hipStreamSynchronize(s.second));
  } else if (what == "other-seen") {
    write_first(s);
    HIP(hipMemcpyAsync(s.host, s.others, size, hipMemcpyDeviceToHost, s.second));
    rest();
    HIP(hipStreamSynchronize(s.second));
    read_second(s);
  } else if (what == "fill") {
    write_first(s);
    HIP(hipMemsetAsync(s.data, 1, size, s.second)); // line: fill
  } else if (what == "fill-around") {
    moves<<<1, kItems, 0, s.first>>>(s.data);
    HIP(hipMemsetAsync(s.data, 1, size, s.second));
  } else if (what == "fill-behind") {
    write_first(s);
    HIP(hipMemsetAsync(s.others, 1, size, s.second));
    read_second(s);
  } else if (what == "copy-to") {
    reads<<<kGroups, kItems, 0, s.first>>>(s.data, s.sums);
    HIP(hipMemcpyAsync(s.data, s.host, size, hipMemcpyHostToDevice, s.second)); // line: copy-to
  } else {
    return false;
  }
  return true;
}

// Something orders them, or they need no order.
static bool order(const std::string &what, Setting &s) {
  const size_t size = kAll * sizeof(int);
  if (what == "event" || what == "event-sync" || what == "stream-sync" || what == "device-sync" || what == "query" ||
      what == "late-event") {
    write_first(s);
    HIP(hipEventRecord(s.event, s.first));
    if (what == "late-event")
      rest();
    if (what == "event" || what == "late-event")
      HIP(hipStreamWaitEvent(s.second, s.event, 0));
    else if (what == "event-sync")
      HIP(hipEventSynchronize(s.event));
    else if (what == "stream-sync")
      HIP(hipStreamSynchronize(s.first));
    else if (what == "device-sync")
      HIP(hipDeviceSynchronize());
    else
      while (hipStreamQuery(s.first) != hipSuccess)
        ;
    read_second(s);
    HIP(hipMemcpyAsync(s.host, s.data, size, hipMemcpyDeviceToHost, s.second));
  } else if (what == "one-stream") {
    write_first(s);
    reads<<<kGroups, kItems, 0, s.first>>>(s.data, s.sums);
    HIP(hipMemcpyAsync(s.data, s.host, size, hipMemcpyHostToDevice, s.first));
    write_first(s);
  } else if (what == "default-stream") {
    hipStream_t blocking;
    HIP(hipStreamCreate(&blocking));
    writes<<<kGroups, kItems, 0, blocking>>>(s.data, 1);
    reads<<<kGroups, kItems>>>(s.data, s.sums);
    writes<<<kGroups, kItems, 0, blocking>>>(s.data, 1);
    HIP(hipMemcpy(s.host, s.data, size, hipMemcpyDeviceToHost));
  } else if (what == "thread") {
    write_first(s);
    std::thread([&] { HIP(hipStreamSynchronize(s.first)); }).join();
    read_second(s);
  } else if (what == "fill-between") {
    write_first(s);
    HIP(hipMemsetAsync(s.data, 1, size, s.first));
    HIP(hipEventRecord(s.event, s.first));
    HIP(hipStreamWaitEvent(s.second, s.event, 0));
    read_second(s);
  } else if (what == "elsewhere") {
    write_first(s);
    writes<<<kGroups, kItems, 0, s.second>>>(s.others, 1);
  } else if (what == "same-value") {
    sets<<<kGroups, kItems, 0, s.first>>>(s.data);
    sets<<<kGroups, kItems, 0, s.second>>>(s.data);
  } else if (what == "atomics") {
    adds<<<kGroups, kItems, 0, s.first>>>(s.data);
    adds<<<kGroups, kItems, 0, s.second>>>(s.data);
  } else if (what == "reads") {
    reads<<<kGroups, kItems, 0, s.first>>>(s.data, s.sums);
    reads<<<kGroups, kItems, 0, s.second>>>(s.data, s.others);
  } else if (what == "flag") {
    tells<<<1, kItems, 0, s.first>>>(s.data, s.flag, s.others);
    waits<<<1, kItems, 0, s.second>>>(s.data, s.flag, s.sums);
  } else if (what == "host-flag") {
    tells<<<1, kItems, 0, s.first>>>(s.data, s.host, s.others);
    while (reinterpret_cast<std::atomic<int> *>(s.host)->load() == 0)
      ;
    read_second(s);
  } else if (what == "copied-flag") {
    tells<<<1, kItems, 0, s.first>>>(s.data, s.flag, s.others);
    do
      HIP(hipMemcpyAsync(s.host, s.flag, sizeof(int), hipMemcpyDeviceToHost, s.second));
    while (hipStreamSynchronize(s.second) == hipSuccess && s.host[0] == 0);
    read_second(s);
  } else if (what == "callback") {
    static std::atomic<bool> called{false};
    write_first(s);
    HIP(hipStreamAddCallback(s.first, [](hipStream_t, hipError_t, void *) { called = true; }, nullptr, 0));
    while (!called)
      ;
    read_second(s);
  } else if (what == "freed") {
    write_first(s);
    HIP(hipFree(s.data));
    HIP(hipMalloc(&s.data, size));
    write_second(s);
  } else {
    return false;
  }
  return true;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i) {
    Setting setting;
    EXPECT(race(argv[i], setting) || order(argv[i], setting));
  }
  std::puts("done");
}
