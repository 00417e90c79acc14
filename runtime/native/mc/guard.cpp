#include "guard.h"

#include "llvm/Support/CrashRecoveryContext.h"

#include <exception>
#include <mutex>

using namespace llvm;

namespace luthier {
namespace {

/// Signal handlers are process-wide, so they are installed only while a guarded call runs. The previous handlers are
/// restored, and meanwhile get every signal that does not come from a guarded call.
class Handlers {
public:
  Handlers() { change(+1); }
  ~Handlers() { change(-1); }
  Handlers(const Handlers &) = delete;
  Handlers &operator=(const Handlers &) = delete;

private:
  static void change(int by) {
    static std::mutex mutex;
    static int users = 0;
    const std::lock_guard<std::mutex> lock(mutex);
    if (by > 0 && users == 0)
      CrashRecoveryContext::Enable();
    users += by;
    if (users == 0)
      CrashRecoveryContext::Disable();
  }
};

} // namespace

bool survives(function_ref<void()> work) {
  const Handlers handlers;
  std::exception_ptr thrown;
  CrashRecoveryContext context;
  const bool finished = context.RunSafely([&] {
    try {
      work();
    } catch (...) { // LLVM's frames around this one must not see an exception
      thrown = std::current_exception();
    }
  });
  if (thrown)
    std::rethrow_exception(thrown);
  return finished;
}

} // namespace luthier
