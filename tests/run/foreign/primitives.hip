// rocPRIM: sort, scan and reduction.
#include <algorithm>
#include <numeric>
#include <rocprim/rocprim.hpp>

#include "../programs/check.h"

// Calls an algorithm of rocPRIM twice: for the size of its temporary memory, and to run it.
template <typename Algorithm> void run(Algorithm algorithm) {
  size_t size = 0;
  void *temporary = nullptr;
  HIP(algorithm(temporary, size));
  HIP(hipMalloc(&temporary, size));
  HIP(algorithm(temporary, size));
  HIP(hipFree(temporary));
}

int main() {
  constexpr size_t kCount = 20000;
  std::vector<unsigned> numbers(kCount);
  unsigned state = 1;
  for (unsigned &one : numbers)
    one = (state = state * 1664525u + 1013904223u) >> 8;
  unsigned *in = on_device(numbers), *out = on_device(numbers);
  std::vector<unsigned> wanted = numbers;

  run([&](void *memory, size_t &size) { return rocprim::radix_sort_keys(memory, size, in, out, kCount); });
  std::sort(wanted.begin(), wanted.end());
  EXPECT(on_host(out, kCount) == wanted);

  run([&](void *memory, size_t &size) {
    return rocprim::inclusive_scan(memory, size, in, out, kCount, rocprim::plus<unsigned>());
  });
  std::partial_sum(numbers.begin(), numbers.end(), wanted.begin());
  EXPECT(on_host(out, kCount) == wanted);

  run([&](void *memory, size_t &size) {
    return rocprim::reduce(memory, size, in, out, kCount, rocprim::maximum<unsigned>());
  });
  EXPECT(on_host(out, 1)[0] == *std::max_element(numbers.begin(), numbers.end()));
  std::puts("sorted, scanned, reduced");
}
