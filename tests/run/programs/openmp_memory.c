// Bugs in the use of memory of OpenMP's device, one a run.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1000 };

int main(int argc, char **argv) {
  const char *bug = argc > 1 ? argv[1] : "none";
  const int device = omp_get_default_device(), above = !strcmp(bug, "above"), mapped = 64 * !strcmp(bug, "mapped");
  int *own = omp_target_alloc(COUNT * sizeof(int), device); // line: allocated
  int *values = malloc(COUNT * sizeof(int));
  if (!strcmp(bug, "freed"))
    omp_target_free(own, device); // line: freed
#pragma omp target is_device_ptr(own)
  for (int i = 0; i < COUNT + above; ++i)
    own[i] = i;
#pragma omp target map(from : values[0 : COUNT])
  for (int i = 0; i < COUNT + mapped; ++i)
    values[i] = i;
  if (!strcmp(bug, "none") || above || mapped)
    omp_target_free(own, device);
  printf("done %d\n", values[COUNT - 1]);
}
