// A tool in the shape that C++ Luthier's have today: hooks and variables are static members of the tool's class.
#include <hip/hip_runtime.h>
#include <luthier/HSATooling/HSATool.h>
#include <luthier/Intrinsic/Intrinsics.h>
#include <luthier/ToolCodeGen/FunctionAnnotations.h>

namespace census {

struct Census : public luthier::HSATool<Census, llvm::MachineFunction> {
  using HSATool::HSATool;

  /// Instructions that ran.
  __attribute__((device)) static uint64_t Total;
  __attribute__((device)) static uint64_t ByOpcode[llvm::AMDGPU::INSTRUCTION_LIST_END];
  __attribute__((device)) static float Requests;
  __attribute__((device)) static uint64_t Instructions;
  __attribute__((managed)) static dim3 Groups;

  /// Counts a vector instruction.
  __attribute__((device, used)) static void onVector(bool PerWave, int Opcode);
  __attribute__((device, used)) static void onScalar(int Opcode);
  __attribute__((device, used)) static void onLds(unsigned M0, unsigned Base, short Offset, short BankShift);
  __attribute__((device, used)) static void onEntry();
  // Not hooks: one gives something back, one is not `used`.
  __attribute__((device, used)) static unsigned activeLanes();
  __attribute__((device)) static bool isFirstLane();
};

} // namespace census

using census::Census;

__attribute__((device)) uint64_t Census::Total;
__attribute__((device)) uint64_t Census::ByOpcode[llvm::AMDGPU::INSTRUCTION_LIST_END];
__attribute__((device)) float Census::Requests;
__attribute__((device)) uint64_t Census::Instructions;
__attribute__((managed)) dim3 Census::Groups{0, 0, 0};

__attribute__((device, used)) unsigned Census::activeLanes() { return __popcll(__builtin_amdgcn_read_exec()); }
__attribute__((device)) bool Census::isFirstLane() {
  return __ffsll(static_cast<unsigned long long>(__builtin_amdgcn_read_exec())) == __lane_id() + 1;
}

__attribute__((device, used)) void Census::onVector(bool PerWave, int Opcode) {
  if (!isFirstLane())
    return;
  atomicAdd((unsigned long long *)&Census::Total, PerWave ? 1ull : activeLanes());
  atomicAdd((unsigned long long *)&Census::ByOpcode[Opcode], 1ull);
}

__attribute__((device, used)) void Census::onScalar(int Opcode) {
  (void)luthier::sAtomicAdd(&Census::Total, 1UL);
  luthier::sAtomicAdd(&Census::ByOpcode[Opcode], 1UL);
}

// How many different banks a request of the wave touches: each lane adds its share of its bank.
__attribute__((device, used)) void Census::onLds(unsigned M0, unsigned Base, short Offset, short BankShift) {
  (void)M0;
  if (isFirstLane())
    atomicAdd((unsigned long long *)&Census::Instructions, 1ull);
  unsigned Bank = ((Base + Offset) >> BankShift) & 31;
  atomicAdd(&Census::Requests, 1.f / static_cast<float>(__popcll(__match_any(Bank))));
}

__attribute__((device, used)) void Census::onEntry() {
  if (isFirstLane())
    Census::Groups = dim3(gridDim.x, gridDim.y, gridDim.z);
}

// A class of no tool: what it marks as used is no hook.
struct Bystander {
  __attribute__((device, used)) static void touch() {}
};

LUTHIER_DEFINE_TOOL_OFFLOAD_PARSER_HANDLES(census::Census)
