// Finds the patched kernel for the kernel object of a packet.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "client.h"
#include "launch_choice.h"
#include "rings.h"
#include "runtime.h"

namespace luthier {

// Faults of Luthier. They never reach the program: the original kernel runs.
class Faults {
public:
  explicit Faults(Client &client) : client_(client) {}
  // Report a text to the service, once. `flush` prints what cannot be reported.
  void tell(const std::string &text);
  void flush();

private:
  Client &client_;
  std::mutex mutex_;
  std::set<std::string> reported_;
  std::vector<std::string> left_;
};

// A kernel that was launched, of one executable.
class Kernel {
public:
  // Count a launch; return its number, and whether it is to run instrumented.
  std::pair<uint64_t, bool> launched(const hsa_kernel_dispatch_packet_t &packet, Client &client, Faults &faults);
  // Make the packet launch the patched kernel.
  void substitute(hsa_kernel_dispatch_packet_t &packet) const;
  // Return the contents of a launch's arguments; empty if they cannot be read.
  std::string read_arguments(const hsa_kernel_dispatch_packet_t &packet) const;

  uint64_t row = ~0ull;                      // in the ledger; a number that is too large if there is none
  uint64_t arguments = 0;                    // bytes of them
  uint64_t delta = 0;                        // added to the virtual addresses of its code object
  uint64_t patched = 0;                      // kernel object, 0 if there is none
  uint32_t more_private = 0, more_group = 0; // bytes that the patched one needs beyond the original
  wire::Limits limits{};                     // what a launch may ask for, so that there is room for what hooks need
  std::string name;
  hsa_executable_t executable{}; // the patched one

private:
  bool has_room(const hsa_kernel_dispatch_packet_t &packet, Faults &faults) const;

  LaunchChoice choice_;
};

class Kernels {
public:
  Kernels(Runtime &runtime, Client &client, Faults &faults) : runtime_(runtime), client_(client), faults_(faults) {}

  // The kernel of a packet on a GPU, patched if it is to be; null if nothing is known of it.
  Kernel *find(unsigned gpu, uint64_t kernel_object);
  // Copy the code objects of an executable that are in memory of the program, which may free it at once.
  void keep(hsa_executable_t executable);
  // Report the code objects of an executable to the service.
  void announce(hsa_executable_t executable);
  // The program destroys an executable: destroy what was made for it.
  void forget(hsa_executable_t executable);
  // Changes when kernels that `find` gave have been destroyed.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

private:
  struct Loaded {
    hsa_executable_t executable;
    hsa_loaded_code_object_t code;
    uint64_t delta; // added to virtual addresses
  };
  std::unique_ptr<Kernel> make(unsigned gpu, uint64_t kernel_object);
  Loaded loaded_around(uint64_t address);
  std::vector<hsa_loaded_code_object_t> loaded_by(hsa_executable_t executable);
  std::string contents(hsa_loaded_code_object_t code);
  uint64_t object(const Loaded &loaded);
  void load(Kernel &kernel, unsigned gpu, const Loaded &loaded, const wire::FindKernelAnswer &answer);
  uint64_t block(unsigned gpu, const std::string &symbol);

  Runtime &runtime_;
  Client &client_;
  Faults &faults_;
  Rings rings_{client_};
  std::mutex mutex_;
  std::atomic<uint64_t> generation_{0};
  std::unordered_map<uint64_t, std::unique_ptr<Kernel>> kernels_;
  std::multimap<uint64_t, uint64_t> of_executable_;           // executable -> kernel objects
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> objects_; // executable, loaded code object -> the service's number
  std::map<std::pair<uint64_t, uint64_t>, std::string> copies_; // the same -> contents, until the service has them
  std::map<std::pair<unsigned, std::string>, uint64_t> blocks_; // GPU, symbol -> address
};

} // namespace luthier
