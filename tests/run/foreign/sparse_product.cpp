// y = A x by rocSPARSE, with A in compressed rows: reads rows, columns, row starts, column numbers, values and x from a file, writes y.
#include <hip/hip_runtime.h>
#include <rocsparse/rocsparse.h>

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

template <typename T> T *read(std::FILE *file, size_t count) {
  std::vector<T> values(count);
  if (std::fread(values.data(), sizeof(T), count, file) != count)
    std::exit(3);
  T *place = nullptr;
  CHECK(hipMalloc(&place, count * sizeof(T)));
  CHECK(hipMemcpy(place, values.data(), count * sizeof(T), hipMemcpyHostToDevice));
  return place;
}

int main(int count, char **arguments) {
  if (count == 1) {  // for the time that only starting takes
    std::puts("started");
    return 0;
  }
  std::FILE *file = std::fopen(arguments[1], "rb");
  int sizes[3];
  if (!file || std::fread(sizes, sizeof(int), 3, file) != 3)
    return 3;
  const auto [rows, columns, entries] = sizes;
  const int *starts = read<int>(file, rows + 1), *numbers = read<int>(file, entries);
  const double *values = read<double>(file, entries), *x = read<double>(file, columns);
  std::vector<double> y(rows);
  double *place = nullptr;
  CHECK(hipMalloc(&place, rows * sizeof(double)));
  rocsparse_handle handle;
  rocsparse_mat_descr descriptor;
  CHECK(rocsparse_create_handle(&handle));
  CHECK(rocsparse_create_mat_descr(&descriptor));
  const double one = 1, zero = 0;
  CHECK(rocsparse_dcsrmv(handle, rocsparse_operation_none, rows, columns, entries, &one, descriptor, values, starts, numbers,
                         nullptr, x, &zero, place));
  CHECK(hipMemcpy(y.data(), place, rows * sizeof(double), hipMemcpyDeviceToHost));
  std::FILE *out = std::fopen(arguments[2], "wb");
  std::fwrite(y.data(), sizeof(double), rows, out);
  std::fclose(out);
  std::puts("multiplied");
}
