// HSA without HIP: kernels that were launched before are launched again when they are no longer there: one of which all
// is gone, its code object no longer loaded, and one of which the descriptor is left, and the page of its code is
// unmapped.
#include <sys/mman.h>

#include "hsa_program.h"

constexpr size_t kDescriptor = 64, kCode = 256, kPage = 4096;

void launch(hsa_queue_t *queue, hsa_kernel_dispatch_packet_t &packet) {
  hsa_signal_store_relaxed(packet.completion_signal, 1);
  submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
  for (int turn = 0; turn < 20'000 && !problem; ++turn)
    if (hsa_signal_wait_scacquire(packet.completion_signal, HSA_SIGNAL_CONDITION_LT, 1, 1'000'000,
                                  HSA_WAIT_STATE_BLOCKED) < 1)
      return;
}

// A copy of a kernel in memory of the program, with its code in the second page.
char *copy_of(uint64_t kernel) {
  char *made =
      static_cast<char *>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(made, 0, 2 * kPage);
  hsa_amd_svm_attribute_pair_t access{HSA_AMD_SVM_ATTRIB_AGENT_ACCESSIBLE, gpu.handle};
  CHECK(hsa_amd_svm_attributes_set(made, 2 * kPage, &access, 1));
  int64_t entry = 0;
  std::memcpy(made, reinterpret_cast<const char *>(kernel), kDescriptor);
  std::memcpy(&entry, made + 16, sizeof entry);
  std::memcpy(made + kPage, reinterpret_cast<const char *>(kernel + entry), kCode);
  entry = kPage;
  std::memcpy(made + 16, &entry, sizeof entry);
  return made;
}

int main(int, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "add_one.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  const uint64_t kernel = packet.kernel_object;
  int *out = allocate<int>(1);
  int **kernarg = reinterpret_cast<int **>(allocate<char>(256));
  *kernarg = out;
  packet.setup = 1;
  packet.workgroup_size_x = packet.workgroup_size_y = packet.workgroup_size_z = 1;
  packet.grid_size_x = packet.grid_size_y = packet.grid_size_z = 1;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));

  for (const bool is_copied : {true, false}) {
    hsa_queue_t *queue = make_queue();
    problem = 0;
    packet.kernel_object = is_copied ? reinterpret_cast<uint64_t>(copy_of(kernel)) : kernel;
    launch(queue, packet);
    std::printf("ran %d times\n", *out);
    std::fflush(stdout);
    if (is_copied)
      munmap(reinterpret_cast<char *>(packet.kernel_object) + kPage, kPage);
    else
      CHECK(hsa_executable_destroy(executable));
    launch(queue, packet);
    std::printf("queue error %#x\n", problem.load());
    CHECK(hsa_queue_destroy(queue));
  }
  CHECK(hsa_shut_down());
}
