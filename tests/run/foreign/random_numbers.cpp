// Writes what a generator of rocRAND gives: arguments are the generator, the seed (for quasi-random ones the number of dimensions),
// how many numbers, and the file.
#include <hip/hip_runtime.h>
#include <rocrand/rocrand.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    const int status = static_cast<int>(call);                                                                         \
    if (status != 0) {                                                                                                 \
      std::printf("%s: %d\n", #call, status);                                                                          \
      std::exit(2);                                                                                                    \
    }                                                                                                                  \
  } while (0)

int main(int, char **arguments) {
  const auto kind = static_cast<rocrand_rng_type>(std::atoi(arguments[1]));
  const unsigned long long seed = std::strtoull(arguments[2], nullptr, 0);
  std::vector<unsigned> numbers(std::strtoull(arguments[3], nullptr, 0));
  rocrand_generator generator;
  CHECK(rocrand_create_generator(&generator, kind));
  if (kind < ROCRAND_RNG_QUASI_DEFAULT)
    CHECK(rocrand_set_seed(generator, seed));
  else
    CHECK(rocrand_set_quasi_random_generator_dimensions(generator, seed));
  unsigned *place = nullptr;
  CHECK(hipMalloc(&place, numbers.size() * sizeof(unsigned)));
  CHECK(rocrand_generate(generator, place, numbers.size()));
  CHECK(hipMemcpy(numbers.data(), place, numbers.size() * sizeof(unsigned), hipMemcpyDeviceToHost));
  std::FILE *file = std::fopen(arguments[4], "wb");
  std::fwrite(numbers.data(), sizeof(unsigned), numbers.size(), file);
  std::fclose(file);
  CHECK(rocrand_destroy_generator(generator));
  std::puts("generated");
}
