// Launches a captured kernel with the recorded memory, and compares the results with the recorded ones.
//
//   hipcc -std=c++17 launch.cpp -o launch && ./launch
//
// Exit status: 0 equal, 1 different, 2 the launch failed. It reads these files: launch.h, kernel.hsaco, before.bin and
// after.bin (pieces: buffer number, offset, size, bytes), arguments.bin, relocations.bin (location: 0 arguments,
// 1 before, 2 after; buffer; offset; target buffer; offset in it). Numbers have 8 bytes.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

struct Buffer {
  const char *variable; // of the code object; null: allocated memory
  uint64_t size;
};

#include "launch.h" // BUFFERS, BUFFER_COUNT, KERNEL, GRID, BLOCK, DYNAMIC_LDS, TARGET

using Bytes = std::vector<char>;
using Place = std::pair<uint64_t, uint64_t>; // buffer, offset
using Pieces = std::map<Place, Bytes>;

static void check(hipError_t status, const char *what) {
  if (status == hipSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
  std::exit(2);
}

static std::string folder;

static Bytes contents(const char *name) {
  const std::string path = folder + name;
  FILE *file = std::fopen(path.c_str(), "rb");
  if (!file) {
    std::fprintf(stderr, "cannot open %s\n", path.c_str());
    std::exit(2);
  }
  Bytes data;
  char block[65536];
  for (size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;)
    data.insert(data.end(), block, block + got);
  std::fclose(file);
  return data;
}

// Reads 8-byte numbers and bytes from the contents of a file.
struct Reader {
  const Bytes &data;
  size_t at = 0;

  bool more() const { return at < data.size(); }

  const char *take(size_t size) {
    if (size > data.size() - at) {
      std::fprintf(stderr, "a file of the launch is damaged\n");
      std::exit(2);
    }
    const char *bytes = data.data() + at;
    at += size;
    return bytes;
  }

  uint64_t number() {
    uint64_t value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
};

static Pieces pieces(const char *name) {
  const Bytes data = contents(name);
  Pieces result;
  for (Reader reader{data}; reader.more();) {
    const uint64_t buffer = reader.number(), offset = reader.number(), size = reader.number();
    const char *bytes = reader.take(size);
    result[{buffer, offset}] = Bytes(bytes, bytes + size);
  }
  return result;
}

int main(int, char **argv) {
  const std::string self = argv[0];
  folder = self.substr(0, self.find_last_of('/') + 1);
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, 0), "hipGetDeviceProperties");
  std::printf("%s, code for %s\n", properties.gcnArchName, TARGET);
  hipModule_t module;
  check(hipModuleLoad(&module, (folder + "kernel.hsaco").c_str()), "hipModuleLoad");
  hipFunction_t kernel;
  check(hipModuleGetFunction(&kernel, module, KERNEL), KERNEL);

  std::vector<char *> places;
  for (size_t number = 0; number < BUFFER_COUNT; ++number) {
    void *place = nullptr;
    size_t size = BUFFERS[number].size;
    if (const char *variable = BUFFERS[number].variable) {
      check(hipModuleGetGlobal(&place, &size, module, variable), variable);
    } else {
      check(hipMalloc(&place, size), "hipMalloc");
      check(hipMemset(place, 0, size), "hipMemset");
    }
    places.push_back(static_cast<char *>(place));
  }

  Pieces before = pieces("before.bin"), changed = pieces("after.bin");
  Bytes arguments = contents("arguments.bin");
  const Bytes relocations = contents("relocations.bin");
  for (Reader reader{relocations}; reader.more();) {
    const uint64_t where = reader.number(), buffer = reader.number(), offset = reader.number();
    const uint64_t target = reader.number(), inside = reader.number();
    const char *address = places.at(target) + inside;
    if (where == 0) {
      std::memcpy(&arguments.at(offset), &address, sizeof address);
      continue;
    }
    Pieces &pieces = where == 1 ? before : changed;
    const auto piece = std::prev(pieces.upper_bound({buffer, offset}));
    std::memcpy(&piece->second.at(offset - piece->first.second), &address, sizeof address);
  }
  Pieces after = before;
  for (const auto &[place, bytes] : changed)
    after[place] = bytes;
  for (const auto &[place, bytes] : before)
    check(hipMemcpy(places.at(place.first) + place.second, bytes.data(), bytes.size(), hipMemcpyHostToDevice),
          "hipMemcpy to the device");

  size_t size = arguments.size();
  void *extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, arguments.data(), HIP_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   HIP_LAUNCH_PARAM_END};
  check(hipModuleLaunchKernel(kernel, GRID, BLOCK, DYNAMIC_LDS, nullptr, nullptr, extra), "hipModuleLaunchKernel");
  check(hipDeviceSynchronize(), "hipDeviceSynchronize");

  uint64_t compared = 0, different = 0;
  for (const auto &[place, expected] : after) {
    Bytes data(expected.size());
    check(hipMemcpy(data.data(), places[place.first] + place.second, data.size(), hipMemcpyDeviceToHost),
          "hipMemcpy from the device");
    compared += data.size();
    for (size_t at = 0; at < data.size(); ++at)
      if (data[at] != expected[at] && different++ == 0)
        std::printf("buffer %llu, byte %llu: %#04x, recorded %#04x\n", (unsigned long long)place.first,
                    (unsigned long long)(place.second + at), data[at] & 0xff, expected[at] & 0xff);
  }
  std::printf("%llu of %llu bytes differ\n", (unsigned long long)different, (unsigned long long)compared);
  return different != 0;
}
