// A guard against one fault of LLVM 22: when the AMDGPU decoder refuses a literal (a VOP3 literal on GFX9, for one), it
// reports that to a comment stream that is null at that point (llvm-project issues 170318 and 214909). The refusal
// itself is right, so the linker sends every Twine::print through here (setup.py, --wrap), where printing to no stream
// does nothing.
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"

extern "C" {
void __real__ZNK4llvm5Twine5printERNS_11raw_ostreamE(const llvm::Twine *twine, llvm::raw_ostream *stream);

void __wrap__ZNK4llvm5Twine5printERNS_11raw_ostreamE(const llvm::Twine *twine, llvm::raw_ostream *stream) {
  if (stream)
    __real__ZNK4llvm5Twine5printERNS_11raw_ostreamE(twine, stream);
}
}
