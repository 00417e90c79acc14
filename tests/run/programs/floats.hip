// Exceptional floats, one a run; without a bug there are none.
#include "check.h"

#include <cmath>
#include <cstring>
#include <hip/hip_fp16.h>

// A million additions; at one place infinity meets infinity of the other sign.
__global__ void adds(const float *a, const float *b, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] + b[at]; // line: adds
}

__global__ void roots(const float *a, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = __builtin_amdgcn_sqrtf(a[at]); // line: roots
}

__global__ void divides(const float *a, const float *b, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] / b[at]; // line: divides
}

__global__ void squares(const float *a, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] * a[at]; // line: squares
}

__global__ void halves(const __half2 *a, __half2 *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = __hmul2(a[at], a[at]); // line: halves
}

__global__ void doubles(const double *a, double *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = a[at] * a[at]; // line: doubles
}

__global__ void narrows(const float *a, __half *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = __float2half(a[at]); // line: narrows
}

// Many numbers of all kinds, one operation after the other.
__global__ void mixes(const float *a, const float *b, float *out) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const float sum = a[at] + b[at]; // line: sum
  const double wide = double(sum) * 1e200;
  const float product = sum * b[at];
  const __half narrow = __float2half(product);
  const auto both = __builtin_amdgcn_cvt_pkrtz(sum, product);
  out[at] = __half2float(narrow) + float(both.x) + float(both.y) + float(wide * wide) + __builtin_amdgcn_rcpf(a[at]);
}

float kind_of_number(int index) {
  const float kinds[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 3e38f, -3e38f, 1e-40f, 1e-20f, 70000, 1e-7f};
  return kinds[index % 13];
}

int main(int argc, char **argv) {
  const char *kernel = argc > 1 ? argv[1] : "adds";
  const bool bug = argc > 2 && !std::strcmp(argv[2], "bug");
  const int count = 1 << 20, place = 777777;
  std::vector<float> one(count, 1.5f), two(count, 2.5f);
  float *out = on_device(std::vector<float>(2 * count));
  const dim3 groups(count / 256), items(256);
  if (!std::strcmp(kernel, "adds")) {
    one[place] = bug ? -INFINITY : 1;
    two[place] = bug ? INFINITY : 1;
    adds<<<groups, items>>>(on_device(one), on_device(two), out);
  } else if (!std::strcmp(kernel, "roots")) {
    one[place] = bug ? -1 : 0;
    roots<<<groups, items>>>(on_device(one), out);
  } else if (!std::strcmp(kernel, "divides")) {
    one[place + 1] = 0; // zero divided by a number is none of the cases
    two[place] = bug ? 0 : 1;
    divides<<<groups, items>>>(on_device(one), on_device(two), out);
  } else if (!std::strcmp(kernel, "halves")) {
    std::vector<__half2> numbers(count, __floats2half2_rn(1, 2));
    numbers[place] = __floats2half2_rn(1, bug ? 60000 : 100);
    halves<<<groups, items>>>(on_device(numbers), reinterpret_cast<__half2 *>(out));
  } else if (!std::strcmp(kernel, "doubles")) {
    std::vector<double> numbers(count, 1.25);
    numbers[place] = bug ? 1e-160 : 1e-100;
    doubles<<<groups, items>>>(on_device(numbers), reinterpret_cast<double *>(out));
  } else if (!std::strcmp(kernel, "squares")) { // of numbers of which nobody has written any but one
    float *numbers = nullptr;
    HIP(hipMalloc(&numbers, count * sizeof *numbers));
    one[place] = bug ? 1e30f : 1;
    HIP(hipMemcpy(numbers + place, &one[place], sizeof one[place], hipMemcpyHostToDevice));
    squares<<<groups, items>>>(numbers, out);
  } else if (!std::strcmp(kernel, "mixes")) {
    for (int at = 0; at < count; ++at) {
      one[at] = kind_of_number(at);
      two[at] = kind_of_number(at / 13);
    }
    mixes<<<1, 192>>>(on_device(one), on_device(two), out);
  } else {
    one[place] = bug ? 1e6f : 1;
    narrows<<<groups, items>>>(on_device(one), reinterpret_cast<__half *>(out));
  }
  HIP(hipDeviceSynchronize());
  std::printf("done\n");
}
