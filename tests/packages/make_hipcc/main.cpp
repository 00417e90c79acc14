#include "kernels.h"

int main(int count, char **) {
  if (count > 1)
    run();
  return 0;
}
