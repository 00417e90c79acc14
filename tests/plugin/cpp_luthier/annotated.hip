// Tools in the shapes that C++ Luthier's had before: hooks that are annotated, free functions and members.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
#include <luthier/Intrinsic/Intrinsics.h>
#include <luthier/ToolCodeGen/FunctionAnnotations.h>

using namespace luthier;

__attribute__((managed)) uint64_t Visits = 0;
__attribute__((managed)) uint64_t SumOfAddresses = 0;

MARK_LUTHIER_DEVICE_MODULE

LUTHIER_INTRINSIC_ANNOTATE uint32_t unknownIntrinsic(uint32_t Value) {
  uint32_t Out;
  doNotOptimize(Value);
  doNotOptimize(Out);
  return Out;
}

LUTHIER_HOOK_ANNOTATE countVisit(bool PerWave) {
  unsigned long long Exec = luthier::readReg<unsigned long long>(llvm::AMDGPU::EXEC);
  if (__ffsll(Exec) == __lane_id() + 1)
    atomicAdd((unsigned long long *)&Visits, PerWave ? 1ull : (unsigned long long)__popcll(Exec));
}
LUTHIER_EXPORT_HOOK_HANDLE(countVisit);

LUTHIER_HOOK_ANNOTATE keepVcc(unsigned long long Address) {
  llvm::MCRegister Where = llvm::AMDGPU::VCC;
  uint64_t Vcc = luthier::readReg<uint64_t>(Where);
  LUTHIER_DONT_OPTIMIZE
  atomicAdd((unsigned long long *)&SumOfAddresses, Address);
  luthier::writeReg(llvm::AMDGPU::VCC, Vcc);
}
LUTHIER_EXPORT_HOOK_HANDLE(keepVcc);

struct Swapper {
  LUTHIER_HOOK_MEMBER_ATTR static void swap();
  LUTHIER_HOST_VISIBLE_DEVICE_FN static uint64_t read() {
    return luthier::readReg<uint64_t>(llvm::AMDGPU::SGPR8_SGPR9) ^ luthier::readReg<uint64_t>(llvm::AMDGPU::VGPR3_VGPR4);
  }
};

LUTHIER_HOOK_MEMBER_ATTR void Swapper::swap() {
  uint64_t Pair = luthier::readReg<uint64_t>(llvm::AMDGPU::SGPR8_SGPR9);
  luthier::writeReg(llvm::AMDGPU::SGPR8_SGPR9, Pair << 32 | Pair >> 32);
}

static_assert(llvm::AMDGPU::VGPR249_VGPR250 == llvm::AMDGPU::VGPR249, "a pair is its first register");
static_assert(llvm::AMDGPU::VGPR254_VGPR255 == llvm::AMDGPU::VGPR254, "a pair is its first register");
static_assert(llvm::AMDGPU::SGPR10_SGPR11 == llvm::AMDGPU::SGPR10, "a pair is its first register");
