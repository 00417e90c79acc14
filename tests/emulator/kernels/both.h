// Lets one source be a HIP kernel and a plain C++ function: on the host a kernel is run item by item.
#pragma once

#if defined(__HIP__)
#include <hip/hip_runtime.h>
#define KERNEL extern "C" __global__ void
#define DEVICE __device__
#define ITEM (blockIdx.x * blockDim.x + threadIdx.x)
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#define KERNEL extern "C" void
#define DEVICE static
#define __restrict__
extern "C" thread_local unsigned current_item;
#define ITEM current_item
#endif

typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
