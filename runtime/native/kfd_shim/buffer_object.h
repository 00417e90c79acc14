// Buffer objects: pieces of memory with as many owners as there are handles to them, the driver's, a render device's
// and exported ones (dma-buf), as in the kernel. Exported ones are files of memory, which other processes map, too.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "system.h"

namespace luthier {

class BufferObject {
public:
  // Takes what it needs of the node's own memory. Throws `OutOfMemory`.
  BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags);
  // Of a file that a process has exported: its memory is counted there.
  BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags, int file);
  ~BufferObject();
  BufferObject(const BufferObject &) = delete;

  // Return the object's file, which stays its own. The first time what is at `address`, if that is not 0, becomes the
  // file's contents, and is mapped from it. Throws `Failure`.
  int file(uint64_t address);
  // Return the service's name for the file.
  uint64_t name(uint64_t address);
  // Map all of it, readable and writable, at an address or, if that is 0, anywhere. Throws `Failure`.
  uint64_t map(uint64_t address);

  // What a program has written down about the object, the same in all processes that have imported it; empty: nothing.
  // Throws `Failure`.
  std::string metadata();
  void set_metadata(std::string_view text);

  const unsigned node;
  const uint64_t size;
  const uint32_t flags; // KFD_IOC_ALLOC_MEM_FLAGS_*

private:
  std::string metadata_path();

  System &system_;
  uint64_t taken_ = 0, name_ = 0;
  pid_t named_by_ = 0;
  int file_ = -1;
};

struct OutOfMemory {};

// The objects of a process that have files, by these: an object that comes back is the one that was exported.
class ExportedObjects {
public:
  // Return a new descriptor of the object's file.
  int export_file(const std::shared_ptr<BufferObject> &object, uint64_t address, bool closes_on_exec);
  // Return the object of a file; null if it is none. Throws `Failure`.
  std::shared_ptr<BufferObject> import_file(System &system, int file);

private:
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<BufferObject>> objects_; // by device and inode
};

} // namespace luthier
