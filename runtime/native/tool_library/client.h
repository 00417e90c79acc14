// Requests of the library to the service of `luthier run`.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "launch_memory.h"
#include "ledger.h"
#include "wire.h"

namespace luthier {

inline constexpr char kToolLibrary[] = "the tool library (libluthier_tools.so)";

// Launches of a kernel that run instrumented, by their number among the kernel's launches in this process.
struct Selection {
  uint64_t first = 0, end = ~0ull, step = 1;
  bool unique_grid = false; // of launches that differ in nothing but their number, the first one only
};

// Events that the tools want reported.
struct Wishes {
  bool launches = false; // one after the other on each device, before and after
  bool code_objects = false;
  bool ranges = false;                       // marks and ranges of roctx
  std::vector<std::string> hsa, hip, memory; // patterns of functions of these APIs
};

struct Answer {
  uint64_t row;                    // in the ledger
  std::string name;                // of the kernel
  std::string symbol;              // of the kernel's descriptor
  uint64_t arguments;              // bytes of them
  std::string object;              // the patched one; empty: the original runs
  std::vector<std::string> blocks; // symbols of the blocks of variables that it refers to
  wire::Limits limits{};           // what a launch may ask for to run it
};

// A block: a file of memory with its initial contents.
struct BlockFile {
  int fd;
  uint64_t size;
  std::vector<uint64_t> rings; // byte offsets of the channels' rings
};

// Memory for events of APIs, and for how many of them.
struct EventFile {
  int fd;
  uint64_t records;
};

class Client {
public:
  // Connects as the environment says; throws `Failure`, as all functions do.
  Client();

  const Selection &selection() const { return selection_; }
  const Wishes &wishes() const { return wishes_; }
  Ledger &ledger() { return ledger_; }
  // Return whether this process made the connection, and did not inherit it.
  bool is_own() const;
  // Returns when the service has ended.
  void wait_for_end() const noexcept { channel_->wait_for_end(); }

  // A number for a code object: the file that `uri` names, or the bytes.
  uint64_t object(std::string_view uri, std::string_view bytes);
  // Return what to do with the kernel whose descriptor is at this virtual address of an object.
  Answer kernel(unsigned gpu, uint64_t object, uint64_t descriptor);
  // The memory of a block on a device.
  BlockFile block(unsigned gpu, const std::string &symbol);
  // A patched object has been loaded: what was added to its addresses and to the original's, and where its blocks are.
  void loaded(uint64_t row, uint64_t delta, uint64_t original_delta, const std::vector<uint64_t> &blocks);
  // A code object has been loaded on a device.
  void code_object(unsigned gpu, uint64_t object);
  // A launch with these arguments is about to begin.
  wire::LaunchAnswer launch(unsigned gpu, uint64_t row, uint64_t number, bool instrumented,
                            const hsa_kernel_dispatch_packet_t &packet, std::string_view arguments);
  // The memory of a launch that is captured, at its begin or end; `problem`, if not empty, says why it cannot be told.
  void launch_memory(const wire::LaunchMemory &launch, const std::string &device, const std::string &problem,
                     const LaunchMemory *memory);
  // It has ended.
  void ended(unsigned gpu, uint64_t row, uint64_t number);
  // There will be events of these functions.
  EventFile functions(const Writer &described);
  // The events so far are to be taken, so that there is room for others.
  void drain();
  // Note an error here; it is reported at the end of the run.
  void tell(std::string_view fault);

private:
  Reader ask(wire::Request kind, const std::string &payload, int *received = nullptr, int sent = -1);

  std::mutex mutex_;
  std::unique_ptr<Channel> channel_;
  int owner_;
  Selection selection_;
  Wishes wishes_;
  Ledger ledger_;
};

} // namespace luthier
