#include "buffer_object.h"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <linux/kfd_ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace luthier {

namespace {

// The name of a file tells a process that imports it whose memory it is.
constexpr char kName[] = "luthier-dmabuf-%u-%x", kLink[] = "/memfd:luthier-dmabuf-%u-%x (deleted)";

void close_file(int file) {
  if (file >= 0)
    close(file);
}

} // namespace

BufferObject::BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags)
    : node(node), size(size), flags(flags), system_(system), taken_(flags & KFD_IOC_ALLOC_MEM_FLAGS_VRAM ? size : 0) {
  if (!system.memory.take(node, taken_))
    throw OutOfMemory();
}

BufferObject::BufferObject(System &system, unsigned node, uint64_t size, uint32_t flags, int file)
    : node(node), size(size), flags(flags), system_(system), file_(file) {}

BufferObject::~BufferObject() {
  if (name_ && named_by_ == getpid()) // a fork's objects have the name of its parent's
    try {
      system_.service.ask(wire::Unshare{name_});
    } catch (const Failure &) {
      name_ = 0; // the service has ended, and all names with it
    }
  system_.memory.give_back(node, taken_);
  close_file(file_);
}

int BufferObject::file(uint64_t address) {
  if (file_ >= 0)
    return file_;
  if (flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR)
    throw Failure("memory of the host cannot be exported");
  char text[64];
  std::snprintf(text, sizeof text, kName, node, flags);
  const int made = memfd_create(text, MFD_CLOEXEC);
  const char *place = reinterpret_cast<const char *>(address);
  bool good = made >= 0 && ftruncate(made, size) == 0;
  for (uint64_t done = 0; address && good && done < size;) {
    const ssize_t count = pwrite(made, place + done, size - done, done);
    good = count > 0;
    done += count;
  }
  file_ = made;
  if (good && address)
    good = map(address) == address;
  if (good) // belongs to another file that had the same number
    std::remove(metadata_path().c_str());
  if (!good) {
    close_file(file_);
    file_ = -1;
    throw Failure("memory cannot be exported");
  }
  return file_;
}

uint64_t BufferObject::name(uint64_t address) {
  if (!name_) {
    name_ = system_.service.ask(wire::Share{size, {file(address)}});
    named_by_ = getpid();
  }
  return name_;
}

uint64_t BufferObject::map(uint64_t address) {
  void *made = mmap(reinterpret_cast<void *>(address), size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | (address ? MAP_FIXED : 0), file(0), 0);
  if (made == MAP_FAILED)
    throw Failure("shared memory cannot be mapped");
  return reinterpret_cast<uint64_t>(made);
}

std::string BufferObject::metadata_path() {
  struct stat status{};
  const char *folder = std::getenv(topology::kFilesVariable);
  if (!folder || fstat(file(0), &status) != 0)
    throw Failure("cannot make a file for the metadata of exported memory");
  return std::string(folder) + "/" + topology::kMetadata + "/" + std::to_string(status.st_dev) + "-" +
         std::to_string(status.st_ino);
}

std::string BufferObject::metadata() {
  std::ifstream stream(metadata_path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// Write another file and rename it: another process may read the file.
void BufferObject::set_metadata(std::string_view text) {
  const std::string path = metadata_path(), beside = path + "." + std::to_string(getpid());
  std::ofstream stream(beside, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream || std::rename(beside.c_str(), path.c_str()) != 0)
    throw Failure("cannot write the metadata of exported memory");
}

int ExportedObjects::export_file(const std::shared_ptr<BufferObject> &object, uint64_t address, bool closes_on_exec) {
  std::lock_guard lock(mutex_);
  struct stat status{};
  const int file = object->file(address);
  if (fstat(file, &status) != 0)
    throw Failure("memory cannot be exported");
  objects_[{status.st_dev, status.st_ino}] = object;
  return fcntl(file, closes_on_exec ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
}

std::shared_ptr<BufferObject> ExportedObjects::import_file(System &system, int file) {
  char link[64], target[128] = {};
  unsigned node = 0, flags = 0;
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  struct stat status{};
  if (readlink(link, target, sizeof target - 1) < 0 || std::sscanf(target, kLink, &node, &flags) != 2 || node == 0 ||
      node >= system.nodes() || fstat(file, &status) != 0)
    return nullptr;
  std::lock_guard lock(mutex_);
  auto &known = objects_[{status.st_dev, status.st_ino}];
  auto object = known.lock();
  if (!object) {
    const int kept = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (kept < 0)
      throw Failure("shared memory cannot be kept");
    object = std::make_shared<BufferObject>(system, node, status.st_size, flags, kept);
    known = object;
  }
  return object;
}

} // namespace luthier
