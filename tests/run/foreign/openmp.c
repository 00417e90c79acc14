// OpenMP regions that GCC offloads; with an argument one of them stores to a pointer that nobody has mapped.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 3000 };

int main(int count, char **arguments) {
  static double values[COUNT];
  double sum = 0;
  int here = 1;
  for (int i = 0; i < COUNT; ++i)
    values[i] = i;
  if (count > 1) {
    struct {
      double *data;
    } host = {malloc(sizeof(double))};
#pragma omp target map(tofrom : host)
    *host.data = COUNT;
  }
#pragma omp target teams distribute parallel for map(tofrom : values)
  for (int i = 0; i < COUNT; ++i)
    values[i] = values[i] * 2 + 1;
#pragma omp target parallel for map(to : values) map(tofrom : sum) reduction(+ : sum)
  for (int i = 0; i < COUNT; ++i)
    sum += values[i];
#pragma omp target map(from : here)
  here = omp_is_initial_device();
  printf("%d devices, on the host: %d, sum %.1f\n", omp_get_num_devices(), here, sum);
}
