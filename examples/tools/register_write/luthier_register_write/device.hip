// Device side of the register writer.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// Sets bits of a register of the application: in the active lanes, or of the wave for a scalar register.
///
/// @param number of the register, such as luthier::VGPR4; constant at each site
LUTHIER_HOOK_ANNOTATE write(uint32_t number, uint32_t keep, uint32_t flip, uint32_t set) {
  const uint32_t value = luthier::readReg<uint32_t>(number);
  luthier::writeReg<uint32_t>(number, ((value & keep) ^ flip) | set);
}
