// Buffer objects: pieces of memory. As in the kernel, each handle to one owns it: handles of the driver, of a render
// device, and exported ones (dma-buf). Exported objects are files of memory, which other processes map, too.
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
  // Take the bytes from the node's own memory. Throws `OutOfMemory`.
  BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags);
  // Import a file that a process has exported. Its memory is counted there.
  BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags, int file);
  ~BufferObject();
  BufferObject(const BufferObject &) = delete;

  // Return the object's file, which the object keeps. The first call moves what is at `address`, unless that is 0, into
  // the file, and maps it from there. Throws `Failure`.
  int file(uint64_t address);
  // Return the service's name for the file.
  uint64_t name(uint64_t address);
  // Map all of it, readable and writable, at an address or, if that is 0, anywhere. Throws `Failure`.
  uint64_t map(uint64_t address);

  // Return the metadata that a program has set for the object, the same in all processes that have imported it; empty
  // if there is none. Throws `Failure`.
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

// The objects of a process that have files, by file: importing an object that this process exported gives the same one.
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
