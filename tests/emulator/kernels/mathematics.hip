// The mathematical functions of the device library against the host's.
#include "both.h"

KERNEL single_precision(const float *a, const float *b, float *o) {
  int i = ITEM;
  float x = a[i], y = b[i];
  float *p = o + i * 40;
  int e;
  p[0] = frexpf(x, &e);
  p[1] = e;
  p[2] = expf(x);
  p[3] = logf(fabsf(x));
  p[4] = sinf(x);
  p[5] = cosf(x);
  p[6] = powf(fabsf(x), y);
  p[7] = fmodf(x, y);
  p[8] = tanhf(x);
  p[9] = erff(x);
  p[10] = 1 / sqrtf(fabsf(x));
  p[11] = ldexpf(x, (int)y);
  p[12] = atan2f(x, y);
  p[13] = cbrtf(x);
  p[14] = log1pf(fabsf(x));
  p[15] = expm1f(x);
  p[16] = exp2f(x);
  p[17] = log2f(fabsf(x));
  p[18] = log10f(fabsf(x));
  p[19] = tanf(x);
  p[20] = hypotf(x, y);
  p[21] = asinf(x / 100);
  p[22] = acosf(x / 100);
  p[23] = atanf(x);
  p[24] = sinhf(x);
  p[25] = coshf(x);
  p[26] = lgammaf(fabsf(x) + 1);
  p[27] = remainderf(x, y);
  p[28] = fdimf(x, y);
  p[29] = asinhf(x);
  p[30] = acoshf(fabsf(x) + 1);
  p[31] = atanhf(x / 100);
  p[32] = nextafterf(x, y);
  p[33] = sinf(x * 1e6f);
  p[34] = cosf(x * 1e12f);
}

KERNEL double_precision(const double *a, const double *b, double *o) {
  int i = ITEM;
  double x = a[i], y = b[i];
  double *p = o + i * 40;
  int e;
  p[0] = frexp(x, &e);
  p[1] = e;
  p[2] = exp(x);
  p[3] = log(fabs(x));
  p[4] = sin(x);
  p[5] = cos(x);
  p[6] = pow(fabs(x), y);
  p[7] = fmod(x, y);
  p[8] = tanh(x);
  p[9] = erf(x);
  p[10] = 1 / sqrt(fabs(x));
  p[11] = ldexp(x, (int)y);
  p[12] = atan2(x, y);
  p[13] = cbrt(x);
  p[14] = log1p(fabs(x));
  p[15] = expm1(x);
  p[16] = exp2(x);
  p[17] = log2(fabs(x));
  p[18] = log10(fabs(x));
  p[19] = tan(x);
  p[20] = hypot(x, y);
  p[21] = asin(x / 100);
  p[22] = acos(x / 100);
  p[23] = atan(x);
  p[24] = sinh(x);
  p[25] = cosh(x);
  p[26] = lgamma(fabs(x) + 1);
  p[27] = remainder(x, y);
  p[28] = asinh(x);
  p[29] = atanh(x / 100);
  p[30] = sin(x * 1e15);
  p[31] = cos(x * 1e200);
}
