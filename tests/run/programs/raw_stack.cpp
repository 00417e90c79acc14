// HSA without HIP: a kernel with a stack whose size only running it tells, launched with the bytes that are asked for
// beyond its fixed private memory, and behind a colon those beyond its static LDS.
#include "hsa_program.h"

int main(int count, char **arguments) {
  const hsa_executable_t executable = load(arguments[1]);
  hsa_executable_symbol_t symbol;
  CHECK(hsa_executable_get_symbol_by_name(executable, "recursive.kd", &gpu, &symbol));
  hsa_kernel_dispatch_packet_t packet{};
  uint32_t fixed = 0, fixed_lds = 0;
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &fixed));
  CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &fixed_lds));
  hsa_queue_t *queue = make_queue();
  int *out = allocate<int>(64), **kernarg = allocate<int *>(64);
  *kernarg = out;
  packet.setup = 1;
  packet.workgroup_size_x = packet.grid_size_x = 64;
  packet.workgroup_size_y = packet.workgroup_size_z = packet.grid_size_y = packet.grid_size_z = 1;
  packet.kernarg_address = kernarg;
  CHECK(hsa_signal_create(1, 0, nullptr, &packet.completion_signal));
  for (int launch = 2; launch < count; ++launch) {
    packet.private_segment_size = fixed + std::atoi(arguments[launch]);
    const char *lds = std::strchr(arguments[launch], ':');
    packet.group_segment_size = fixed_lds + (lds ? std::atoi(lds + 1) : 0);
    hsa_signal_store_relaxed(packet.completion_signal, 1);
    submit(queue, &packet, HSA_PACKET_TYPE_KERNEL_DISPATCH);
    wait_for(packet.completion_signal);
    unsigned sum = 0;
    for (int i = 0; i < 64; ++i)
      sum = sum * 31 + out[i];
    std::printf("%u\n", sum);
    std::memset(out, 0, 64 * sizeof *out);
  }
  CHECK(hsa_queue_destroy(queue));
  CHECK(hsa_shut_down());
}
