// Device side of the value log: values of registers and operands at selected instructions.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>

MARK_LUTHIER_DEVICE_MODULE

/// 32 bits of a value.
struct Value {
  uint64_t pc; // virtual address of the instruction in its code object
  uint32_t bits;
  uint32_t workgroup; // in the first dimension
  uint32_t item;      // work-item in the work-group, in the first dimension; of the wave's first lane where lane is 255
  uint16_t value;     // number of the value in the option `values`
  uint8_t word;       // which 32 bits of it
  uint8_t lane;       // 255: once for the wave
};
LUTHIER_RECORD(Value, pc, bits, workgroup, item, value, word, lane)

__device__ luthier::channel<Value> values;

/// Logs a value for each active lane.
LUTHIER_HOOK_ANNOTATE of_lanes(uint32_t bits, uint64_t pc, uint16_t value, uint8_t word) {
  values.push({pc, bits, blockIdx.x, threadIdx.x, value, word, static_cast<uint8_t>(__lane_id())});
}

/// Logs a value once for the wave.
LUTHIER_HOOK_ANNOTATE of_wave(uint32_t bits, uint64_t pc, uint16_t value, uint8_t word) {
  values.pushWave({pc, bits, blockIdx.x, threadIdx.x, value, word, 255});
}
