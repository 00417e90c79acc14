// Device side of the timing tool: the clock is subtracted from a sum at one point and added to it at another.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// By site: times at ends minus times at beginnings, modulo 2^64; beginnings; ends. Waves need not remember their
/// start.
__device__ uint64_t spans[16384][3];

namespace {

/// The counter of shader cycles: s_memtime, since GFX11 HW_REG_SHADER_CYCLES (of 20 bits there, on GFX12 of 64).
__device__ inline uint64_t cycles() {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_readcyclecounter();
#else
  return __builtin_amdgcn_s_memtime();
#endif
}

/// The constant clock of the device: s_memrealtime, since GFX11 a message that asks for it.
__device__ inline uint64_t real() {
#if defined(__GFX11__) || defined(__GFX12__)
  return __builtin_amdgcn_s_sendmsg_rtnl(0x83); // MSG_RTN_GET_REALTIME
#else
  return __builtin_amdgcn_s_memrealtime();
#endif
}

__device__ inline void begin(uint32_t site, uint64_t now) {
  luthier::sAtomicAdd<uint64_t>(&spans[site][0], -now);
  luthier::sAtomicAdd<uint64_t>(&spans[site][1], 1);
}

__device__ inline void end(uint32_t site, uint64_t now) {
  luthier::sAtomicAdd<uint64_t>(&spans[site][0], now);
  luthier::sAtomicAdd<uint64_t>(&spans[site][2], 1);
}

} // namespace

LUTHIER_HOOK_ANNOTATE begin_cycles(uint32_t site) { begin(site, cycles()); }
LUTHIER_HOOK_ANNOTATE end_cycles(uint32_t site) { end(site, cycles()); }
LUTHIER_HOOK_ANNOTATE begin_real(uint32_t site) { begin(site, real()); }
LUTHIER_HOOK_ANNOTATE end_real(uint32_t site) { end(site, real()); }
