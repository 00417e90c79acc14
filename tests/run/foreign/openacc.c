// OpenACC regions that GCC offloads.
#include <openacc.h>
#include <stdio.h>

enum { COUNT = 4000 };

int main(void) {
  static float a[COUNT], b[COUNT];
  float sum = 0;
  for (int i = 0; i < COUNT; ++i) {
    a[i] = i % 17;
    b[i] = i % 5;
  }
#pragma acc data copy(a) copyin(b)
  {
#pragma acc parallel loop
    for (int i = 0; i < COUNT; ++i)
      a[i] += 3 * b[i];
#pragma acc parallel loop reduction(+ : sum)
    for (int i = 0; i < COUNT; ++i)
      sum += a[i];
  }
  printf("on a GPU: %d, sum %.0f\n", acc_get_device_type() == acc_device_radeon, sum);
}
