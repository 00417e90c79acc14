// Arrays of one to three dimensions and of layers: copied to and back, read as textures, written as surfaces.
#include <cmath>

#include "check.h"

#if !defined(__gfx942__) && !defined(__gfx950__) // these have no images
#define WITH_IMAGES 1
#endif
#if WITH_IMAGES && !defined(__gfx90a__)
#define WITH_SAMPLES 1
#endif

struct Box {
  int width, height, depth;
  __host__ __device__ int rows() const { return height ? height : 1; }
  __host__ __device__ int planes() const { return depth ? depth : 1; }
  __host__ __device__ int count() const { return width * rows() * planes(); }
};

enum Kind { kLine, kPlane, kVolume, kLayers };

template <typename T> __global__ void read(hipTextureObject_t texture, T *out, Box box, Kind kind) {
#if WITH_SAMPLES
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= box.count())
    return;
  const int x = index % box.width, y = index / box.width % box.rows(), z = index / box.width / box.rows();
  switch (kind) {
  case kLine:
    out[index] = tex1D<T>(texture, x + 0.5f);
    break;
  case kPlane:
    out[index] = tex2D<T>(texture, x + 0.5f, y + 0.5f);
    break;
  case kVolume:
    out[index] = tex3D<T>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
    break;
  case kLayers:
    out[index] = tex2DLayered<T>(texture, x + 0.5f, y + 0.5f, z);
    break;
  }
#endif
}

__global__ void write(hipSurfaceObject_t surface, Box box) {
#if WITH_IMAGES
  const int index = blockIdx.x * blockDim.x + threadIdx.x, x = index % box.width, y = index / box.width;
  if (y < box.height)
    surf2Dwrite(float(1000 * y + x), surface, x * sizeof(float), y);
#endif
}

// The place of a sample in elements, along each axis: quarters, some of them outside.
__host__ __device__ float quarter(int index, int step) { return 0.25f * (index * step % 37) - 1.0f; }

__global__ void filter(hipTextureObject_t plane, hipTextureObject_t volume, float *out, Box box) {
#if WITH_SAMPLES
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  const float x = quarter(index, 1), y = quarter(index, 5), z = quarter(index, 7);
  out[2 * index] = tex2D<float>(plane, x / box.width, y / box.height);
  out[2 * index + 1] = tex3D<float>(volume, x / box.width, y / box.height, z / box.depth);
#endif
}

hipTextureObject_t texture_of(hipArray_t array, hipTextureFilterMode filter, bool normalized) {
  hipResourceDesc resource{};
  resource.resType = hipResourceTypeArray;
  resource.res.array.array = array;
  hipTextureDesc how{};
  for (hipTextureAddressMode &mode : how.addressMode)
    mode = hipAddressModeClamp;
  how.filterMode = filter;
  how.readMode = hipReadModeElementType;
  how.normalizedCoords = normalized;
  hipTextureObject_t texture;
  HIP(hipCreateTextureObject(&texture, &resource, &how, nullptr));
  return texture;
}

template <typename T> hipArray_t array_of(const std::vector<T> &values, Box box, Kind kind) {
  const hipChannelFormatDesc format = hipCreateChannelDesc<T>();
  hipArray_t array;
  HIP(hipMalloc3DArray(&array, &format, make_hipExtent(box.width, box.height, box.depth),
                       kind == kLayers ? hipArrayLayered : hipArrayDefault));
  hipMemcpy3DParms copy{};
  copy.srcPtr = make_hipPitchedPtr(const_cast<T *>(values.data()), box.width * sizeof(T), box.width, box.rows());
  copy.dstArray = array;
  copy.extent = make_hipExtent(box.width, box.rows(), box.planes());
  copy.kind = hipMemcpyHostToDevice;
  HIP(hipMemcpy3D(&copy));
  return array;
}

template <typename T> std::vector<T> copied_back(hipArray_t array, Box box) {
  std::vector<T> values(box.count());
  hipMemcpy3DParms copy{};
  copy.srcArray = array;
  copy.dstPtr = make_hipPitchedPtr(values.data(), box.width * sizeof(T), box.width, box.rows());
  copy.extent = make_hipExtent(box.width, box.rows(), box.planes());
  copy.kind = hipMemcpyDeviceToHost;
  HIP(hipMemcpy3D(&copy));
  return values;
}

// Returns the sum of what is different, of bytes.
template <typename T> int different(const std::vector<T> &left, const std::vector<T> &right) {
  const auto *a = reinterpret_cast<const unsigned char *>(left.data());
  const auto *b = reinterpret_cast<const unsigned char *>(right.data());
  int found = 0;
  for (size_t place = 0; place < left.size() * sizeof(T); ++place)
    found += a[place] != b[place];
  return found;
}

template <typename T> void elements(const char *name, Box box, Kind kind) {
  std::vector<T> values(box.count());
  auto *bytes = reinterpret_cast<unsigned char *>(values.data());
  for (size_t place = 0; place < values.size() * sizeof(T); ++place) // no float is a NaN
    bytes[place] = (place * 7 + place / 251 + place / 64007) % 127;
  hipArray_t array = array_of(values, box, kind);
  const hipTextureObject_t texture = texture_of(array, hipFilterModePoint, false);
  T *out = on_device(std::vector<T>(values.size()));
  read<T><<<(box.count() + 255) / 256, 256>>>(texture, out, box, kind);
  const int read = different(on_host(out, values.size()), values);
  const int back = different(copied_back<T>(array, box), values);
  std::printf("%s %d x %d x %d: %d read, %d copied wrong\n", name, box.width, box.height, box.depth, read, back);
  HIP(hipDestroyTextureObject(texture));
  HIP(hipFree(out));
  HIP(hipFreeArray(array));
}

void surface(Box box) {
  const hipChannelFormatDesc format = hipCreateChannelDesc<float>();
  hipArray_t array;
  HIP(hipMallocArray(&array, &format, box.width, box.height, hipArrayDefault));
  hipResourceDesc resource{};
  resource.resType = hipResourceTypeArray;
  resource.res.array.array = array;
  hipSurfaceObject_t surface;
  HIP(hipCreateSurfaceObject(&surface, &resource));
  write<<<(box.count() + 255) / 256, 256>>>(surface, box);
  HIP(hipDeviceSynchronize());
  const std::vector<float> values = copied_back<float>(array, box);
  int wrong = 0;
  for (int index = 0; index < box.count(); ++index)
    wrong += values[index] != 1000 * (index / box.width) + index % box.width;
  std::printf("surface %d x %d: %d wrong\n", box.width, box.height, wrong);
  HIP(hipDestroySurfaceObject(surface));
  HIP(hipFreeArray(array));
}

// Returns what lies at a place in a line of elements, by a function of the element's number.
template <typename F> float between(float place, int count, F element) {
  const float below = std::floor(place - 0.5f), weight = place - 0.5f - below;
  const auto at = [&](float number) { return element(std::min(std::max(int(number), 0), count - 1)); };
  return at(below) + (at(below + 1) - at(below)) * weight;
}

void filtered(Box box) {
  std::vector<float> values(box.count());
  for (int index = 0; index < box.count(); ++index)
    values[index] = index * 5 % 64;
  const Box plane{box.width, box.height, 0};
  hipArray_t arrays[] = {array_of(std::vector<float>(values.begin(), values.begin() + plane.count()), plane, kPlane),
                         array_of(values, box, kVolume)};
  constexpr int kSamples = 256;
  float *out = on_device(std::vector<float>(2 * kSamples));
  filter<<<1, kSamples>>>(texture_of(arrays[0], hipFilterModeLinear, true),
                          texture_of(arrays[1], hipFilterModeLinear, true), out, box);
  const std::vector<float> found = on_host(out, 2 * kSamples);
  int wrong[2] = {};
  for (int index = 0; index < kSamples; ++index) {
    const float x = quarter(index, 1), y = quarter(index, 5), z = quarter(index, 7);
    const auto in_plane = [&](int layer) {
      return between(y, box.height, [&](int row) {
        return between(x, box.width,
                       [&](int column) { return values[(layer * box.height + row) * box.width + column]; });
      });
    };
    wrong[0] += std::fabs(found[2 * index] - in_plane(0)) > 0.01f;
    wrong[1] += std::fabs(found[2 * index + 1] - between(z, box.depth, in_plane)) > 0.01f;
  }
  std::printf("filtered: %d of a plane, %d of a volume wrong\n", wrong[0], wrong[1]);
}

int main() {
  elements<float>("line", {700, 0, 0}, kLine);
  elements<unsigned char>("plane", {11, 9, 0}, kPlane);
  elements<float>("plane", {100, 50, 0}, kPlane);
  elements<float4>("plane", {517, 131, 0}, kPlane);
  elements<unsigned short>("plane", {900, 700, 0}, kPlane);
  elements<float>("volume", {20, 30, 5}, kVolume);
  elements<float4>("volume", {70, 41, 33}, kVolume);
  elements<float>("layers", {20, 30, 5}, kLayers);
  elements<uchar4>("layers", {300, 201, 3}, kLayers);
  surface({257, 65, 0});
  filtered({8, 8, 8});
  return 0;
}
