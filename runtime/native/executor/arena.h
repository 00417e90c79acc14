// Zeroed memory of the process between two inaccessible pages, freed by the destructor.
#pragma once

#include <sys/mman.h>

#include <utility>

#include "bytes.h"

namespace luthier {

class Arena {
public:
  Arena() = default;
  explicit Arena(size_t size) : size_(round_up(size ? size : 1, kPage)) {
    void *made = mmap(nullptr, size_ + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
      throw Failure("cannot get " + std::to_string(size) + " bytes of memory");
    data_ = static_cast<char *>(made) + kPage;
    if (mprotect(data_, size_, PROT_READ | PROT_WRITE) != 0) {
      munmap(made, size_ + 2 * kPage);
      throw Failure("cannot get " + std::to_string(size) + " bytes of memory");
    }
  }
  Arena(Arena &&other) noexcept { swap(other); }
  Arena &operator=(Arena &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Arena() {
    if (data_)
      munmap(data_ - kPage, size_ + 2 * kPage);
  }
  char *data() const { return data_; }
  size_t size() const { return size_; }

private:
  static constexpr size_t kPage = 4096;
  void swap(Arena &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  char *data_ = nullptr;
  size_t size_ = 0;
};

} // namespace luthier
