// What the host does with memory while an asynchronous copy may use it: one thing a run.
#include "check.h"

#include <hip/hip_ext.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

constexpr int kCount = 16384;
constexpr size_t kSize = kCount * sizeof(int);

__global__ void doubles(int *data) { data[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }

struct Buffers {
  int *host = nullptr, *device = nullptr;
  hipStream_t stream{}, other{};
  hipEvent_t event{};
  bool is_registered = false, is_managed = false;

  int *for_kernels() const {
    int *place = host;
    if (!is_managed)
      HIP(hipHostGetDevicePointer(reinterpret_cast<void **>(&place), host, 0));
    return place;
  }
};

int *registered() {
  auto *const memory = static_cast<int *>(aligned_alloc(4096, kSize));
  HIP(hipHostRegister(memory, kSize, hipHostRegisterDefault));
  return memory;
}

[[gnu::noinline]] void to_device(const Buffers &of) {
  HIP(hipMemcpyAsync(of.device, of.host, kSize, hipMemcpyHostToDevice, of.stream)); // line: to device
}

[[gnu::noinline]] void to_host(const Buffers &of) {
  HIP(hipMemcpyAsync(of.host, of.device, kSize, hipMemcpyDeviceToHost, of.stream)); // line: to host
  usleep(200000); // the virtual device has ended the copy, without the host's knowing
}

[[gnu::noinline]] void writes(int *host) { host[1000] = 5; } // line: writes
[[gnu::noinline]] int reads(const int *host) {
  return static_cast<const volatile int *>(host)[1000]; // line: reads
}
[[gnu::noinline]] void sets(int *host) {
  std::memset(host, 1, kSize); // line: sets
  host[1] = 1;
}

[[gnu::noinline]] void passes_out(const int *host) {
  int ends[2];
  EXPECT(!pipe(ends));
  EXPECT(write(ends[1], host, 64) == 64); // line: passes out
  int got[16];
  EXPECT(read(ends[0], got, 64) == 64);
}

[[gnu::noinline]] void takes_in(int *host) {
  int ends[2], given[16] = {7};
  EXPECT(!pipe(ends));
  EXPECT(write(ends[1], given, 64) == 64);
  EXPECT(read(ends[0], host, 64) == 64); // line: takes in
  EXPECT(host[0] == 7);
}

void after_host_function(const Buffers &of) {
  static std::atomic<bool> is_done{false};
  HIP(hipStreamAddCallback(of.stream, [](hipStream_t, hipError_t, void *) { is_done = true; }, nullptr, 0));
  while (!is_done)
    usleep(100);
}

volatile std::sig_atomic_t handled = 0;

const std::map<std::string, std::function<void(Buffers &)>> kRuns = {
    {"writes", [](Buffers &of) { to_device(of), writes(of.host); }},
    {"writes by memset", [](Buffers &of) { to_device(of), sets(of.host); }},
    {"writes in a thread", [](Buffers &of) { to_device(of), std::thread(writes, of.host).join(); }},
    {"writes by read", [](Buffers &of) { to_device(of), takes_in(of.host); }},
    {"writes after another stream",
     [](Buffers &of) { to_device(of), (void)hipStreamSynchronize(of.other), writes(of.host); }},
    {"writes after an early event",
     [](Buffers &of) {
       HIP(hipEventRecord(of.event, of.stream));
       to_device(of);
       HIP(hipEventSynchronize(of.event));
       writes(of.host);
     }},
    {"writes in a host function",
     [](Buffers &of) {
       to_device(of);
       HIP(hipStreamAddCallback(
           of.other, [](hipStream_t, hipError_t, void *host) { writes(static_cast<int *>(host)); }, of.host, 0));
       HIP(hipStreamSynchronize(of.other));
     }},
    {"reads", [](Buffers &of) { to_host(of), reads(of.host); }},
    {"reads by write", [](Buffers &of) { to_host(of), passes_out(of.host); }},
    {"writes what is written", [](Buffers &of) { to_host(of), writes(of.host); }},
    {"frees",
     [](Buffers &of) {
       int *made = nullptr;
       HIP(hipMallocAsync(reinterpret_cast<void **>(&made), kSize, of.stream));
       HIP(hipMemcpyAsync(made, of.host, kSize, hipMemcpyHostToDevice, of.stream)); // line: to freed
       HIP(hipFreeAsync(made, of.other));                                           // line: frees
     }},
    // These are right.
    {"frees in order",
     [](Buffers &of) {
       int *made = nullptr;
       HIP(hipMallocAsync(reinterpret_cast<void **>(&made), kSize, of.stream));
       HIP(hipMemcpyAsync(made, of.host, kSize, hipMemcpyHostToDevice, of.stream));
       HIP(hipEventRecord(of.event, of.stream));
       HIP(hipStreamWaitEvent(of.other, of.event, 0));
       HIP(hipFreeAsync(made, of.other));
     }},
    {"reads what is read", [](Buffers &of) { to_device(of), reads(of.host), passes_out(of.host); }},
    {"stream", [](Buffers &of) { to_host(of), (void)hipStreamSynchronize(of.stream), sets(of.host); }},
    {"device", [](Buffers &of) { to_host(of), (void)hipDeviceSynchronize(), sets(of.host); }},
    {"event",
     [](Buffers &of) {
       to_host(of);
       HIP(hipEventRecord(of.event, of.stream));
       HIP(hipEventSynchronize(of.event));
       sets(of.host);
     }},
    {"event of a stream that waits",
     [](Buffers &of) {
       to_host(of);
       HIP(hipEventRecord(of.event, of.stream));
       HIP(hipStreamWaitEvent(of.other, of.event, 0));
       HIP(hipStreamSynchronize(of.other));
       sets(of.host);
     }},
    {"query",
     [](Buffers &of) {
       to_host(of);
       while (hipStreamQuery(of.stream) != hipSuccess)
         usleep(100);
       sets(of.host);
     }},
    {"copy of the null stream",
     [](Buffers &of) {
       to_host(of);
       int value = 0;
       HIP(hipMemcpy(&value, of.device, sizeof value, hipMemcpyDeviceToHost));
       sets(of.host);
     }},
    {"host function", [](Buffers &of) { to_host(of), after_host_function(of), sets(of.host); }},
    {"pageable",
     [](Buffers &of) {
       std::vector<int> plain(kCount, 3);
       HIP(hipMemcpyAsync(of.device, plain.data(), kSize, hipMemcpyHostToDevice, of.stream));
       plain[1] = 4;
     }},
    {"round trip",
     [](Buffers &of) {
       to_device(of);
       doubles<<<kCount / 64, 64, 0, of.stream>>>(of.device);
       to_host(of);
       doubles<<<kCount / 64, 64, 0, of.stream>>>(of.for_kernels()); // the device may go on with it
       HIP(hipStreamSynchronize(of.stream));
       EXPECT(of.host[0] == 8);
     }},
    {"crowd",
     [](Buffers &of) {
       for (int turn = 0; turn < 4200; ++turn)
         HIP(hipMemcpyAsync(of.device, of.host, 64, hipMemcpyHostToDevice, of.stream));
     }},
    {"event that is recorded in another way",
     [](Buffers &of) {
       to_host(of);
       void *arguments[] = {&of.device};
       HIP(hipExtLaunchKernel(reinterpret_cast<const void *>(doubles), 1, 64, arguments, 0, of.stream, nullptr,
                              of.event, 0));
       HIP(hipStreamWaitEvent(of.other, of.event, 0));
       HIP(hipStreamSynchronize(of.other));
       sets(of.host);
     }},
    {"freed at once", [](Buffers &of) { to_device(of), (void)hipFree(of.device), of.device = nullptr; }},
    {"own handler",
     [](Buffers &of) {
       struct sigaction handler{};
       static char *page;
       page = static_cast<char *>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
       handler.sa_handler = [](int) {
         handled = handled + 1;
         mprotect(page, 4096, PROT_READ | PROT_WRITE);
       };
       sigaction(SIGSEGV, &handler, nullptr);
       to_device(of);
       *static_cast<volatile char *>(page) = 1;
       EXPECT(handled == 1);
     }},
};

int main(int argc, char **argv) {
  EXPECT(argc == 3);
  const std::string memory = argv[2];
  Buffers of;
  of.is_registered = memory == "registered", of.is_managed = memory == "managed";
  if (of.is_registered)
    of.host = registered();
  else if (of.is_managed)
    HIP(hipMallocManaged(reinterpret_cast<void **>(&of.host), kSize, hipMemAttachGlobal));
  else
    HIP(hipHostMalloc(reinterpret_cast<void **>(&of.host), kSize, hipHostMallocDefault));
  for (int at = 0; at < kCount; ++at)
    of.host[at] = 2;
  HIP(hipMalloc(reinterpret_cast<void **>(&of.device), kSize));
  HIP(hipMemset(of.device, 0, kSize));
  HIP(hipStreamCreate(&of.stream));
  HIP(hipStreamCreate(&of.other));
  HIP(hipEventCreateWithFlags(&of.event, hipEventDisableTiming));
  kRuns.at(argv[1])(of);
  HIP(hipDeviceSynchronize());
  HIP(hipFree(of.device));
  if (of.is_registered) {
    HIP(hipHostUnregister(of.host));
    std::free(of.host);
  } else {
    HIP(of.is_managed ? hipFree(of.host) : hipHostFree(of.host));
  }
  std::puts("done");
}
