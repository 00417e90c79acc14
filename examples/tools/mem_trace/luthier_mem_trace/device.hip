// Device side of the memory tracer: a record for each access of each lane.
#include <hip/hip_runtime.h>
#include <luthier/channel.h>

MARK_LUTHIER_DEVICE_MODULE

/// One access to memory.
struct Access {
  uint64_t address;
  uint64_t pc;        // virtual address of the instruction in its code object
  uint32_t workgroup; // in the first dimension
  uint16_t kernel;    // its number in the tool's report
  uint16_t size;      // bytes
  uint8_t lane;
  uint8_t kind;  // 0 load, 1 store, 2 atomic
  uint8_t space; // 0 global, 1 flat, 2 scratch, 3 buffer, 4 lds, 5 scalar, 6 scalar buffer
};
LUTHIER_RECORD(Access, address, pc, workgroup, kernel, size, lane, kind, space)

__device__ luthier::channel<Access> accesses;

/// A vector instruction accesses memory, in every active lane.
LUTHIER_HOOK_ANNOTATE access(uint64_t address, uint64_t pc, uint16_t kernel, uint16_t size, uint8_t kind, uint8_t space) {
  accesses.push(
      {address, pc, __builtin_amdgcn_workgroup_id_x(), kernel, size, static_cast<uint8_t>(__lane_id()), kind, space});
}

/// A scalar instruction does, once for its wave; the lane is 255.
LUTHIER_HOOK_ANNOTATE access_wave(uint64_t address, uint64_t pc, uint16_t kernel, uint16_t size, uint8_t kind,
                                  uint8_t space) {
  accesses.pushWave({address, pc, __builtin_amdgcn_workgroup_id_x(), kernel, size, 255, kind, space});
}
