// A caching allocator: parts of one allocation are given out, split and reused.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <map>
#include <string>

#include "../../../runtime/luthier/include/luthier_annotate.h"
#include "check.h"

constexpr size_t kSlab = 1 << 16, kGranule = 512;

// First fit; a free block is split, and not joined with its neighbours.
class Cache {
public:
  Cache() {
    HIP(hipMalloc(&slab_, kSlab));
    free_[slab_] = kSlab;
  }
  ~Cache() { (void)hipFree(slab_); }
  int *get(size_t bytes, const char *name = nullptr) {
    const size_t room = (bytes + kGranule - 1) / kGranule * kGranule;
    for (auto &[at, size] : free_)
      if (size >= room) {
        char *place = at;
        const size_t left = size - room;
        free_.erase(place);
        if (left)
          free_[place + room] = left;
        used_[place] = room;
        luthier_alloc_named(place, bytes, name); // line: get
        return reinterpret_cast<int *>(place);
      }
    std::exit(4);
  }
  void give_back(int *part) {
    char *place = reinterpret_cast<char *>(part);
    luthier_free(place);
    free_[place] = used_[place];
    used_.erase(place);
  }

private:
  char *slab_ = nullptr;
  std::map<char *, size_t> free_, used_;
};

__global__ void fills(int *out, int count) {
  if (int(threadIdx.x) < count)
    out[threadIdx.x] = threadIdx.x; // line: fills
}

__global__ void adds(const int *in, int *out) {
  if (in[threadIdx.x] > 3) // line: adds
    out[threadIdx.x] = in[threadIdx.x];
}

int main(int, char **arguments) {
  const std::string way = arguments[1];
  {
    Cache cache;
    int *first = cache.get(400, "bias"), *second = cache.get(512, "weights"), *third = cache.get(1024);
    fills<<<1, 256>>>(second, 128);
    fills<<<1, 256>>>(third, 256);
    if (way == "over") // into the slack behind the 100 numbers, then into the neighbour
      fills<<<1, 256>>>(first, 129);
    else
      fills<<<1, 256>>>(first, 100);
    if (way == "behind") // where no part has been yet
      fills<<<1, 256>>>(third + 256, 1);
    if (way == "late") {
      cache.give_back(second);
      fills<<<1, 256>>>(second, 128);
    }
    if (way == "reused") { // right: a part of the freed one
      cache.give_back(third);
      third = cache.get(256);
      fills<<<1, 64>>>(third, 64);
      int *rest = cache.get(512);
      fills<<<1, 128>>>(rest, 128);
      adds<<<1, 64>>>(third, rest);
    }
    if (way == "unwritten") {
      cache.give_back(second);
      second = cache.get(512);
      adds<<<1, 64>>>(second, third);
    }
    if (way == "twice") {
      luthier_free(second);
      luthier_free(second);
    }
    if (way == "whole") { // an allocation without parts
      int *whole = nullptr;
      HIP(hipMalloc(&whole, 1024));
      luthier_free(whole);
      fills<<<1, 256>>>(whole, 256);
      HIP(hipDeviceSynchronize());
      HIP(hipFree(whole));
    }
    if (way == "nested") { // in a live part
      luthier_alloc(third + 64, 256);
      fills<<<1, 256>>>(third, 256);
    }
    HIP(hipDeviceSynchronize());
  }
  std::puts("done");
}
