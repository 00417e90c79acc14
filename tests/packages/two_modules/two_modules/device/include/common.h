// Shared by both modules.
#pragma once
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

#define STEP 1
