// What the programs share: an error of HIP, or a wrong result, ends them with a message.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define HIP(call)                                                                                                      \
  do {                                                                                                                 \
    const hipError_t status = (call);                                                                                  \
    if (status != hipSuccess) {                                                                                        \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, hipGetErrorString(status));                            \
      std::exit(2);                                                                                                    \
    }                                                                                                                  \
  } while (0)

#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                              \
      std::exit(3);                                                                                                    \
    }                                                                                                                  \
  } while (0)

template <typename T> T *on_device(const std::vector<T> &values) {
  T *place = nullptr;
  HIP(hipMalloc(&place, values.size() * sizeof(T)));
  HIP(hipMemcpy(place, values.data(), values.size() * sizeof(T), hipMemcpyHostToDevice));
  return place;
}

template <typename T> std::vector<T> on_host(const T *place, size_t count) {
  std::vector<T> values(count);
  HIP(hipMemcpy(values.data(), place, count * sizeof(T), hipMemcpyDeviceToHost));
  return values;
}
