#include "launch_stacks.h"

namespace luthier {

uint32_t LaunchStacks::here() {
  if (!client_.is_own())
    return 0;
  bool is_new = false;
  const CallTrace stack = stack_here(ranges_here(), &is_new);
  if (!stack) {
    faults_.tell("a process has launched from more than 65,536 stacks of calls: those of later launches are unknown");
    return 0;
  }
  if (is_new)
    try {
      tell(*stack);
    } catch (const std::exception &problem) {
      faults_.tell(problem.what());
    }
  return stack->number;
}

void LaunchStacks::tell(const HostStack &stack) {
  if (const char *problem = why_no_python())
    faults_.tell(problem);
  wire::NewStack told{};
  told.number = stack.number;
  told.is_whole = stack.is_whole;
  std::lock_guard lock(mutex_); // frames are numbered in the order in which the service gets them
  for (const auto &[code, python] : stack.frames) {
    const void *const key = code ? static_cast<const void *>(code) : python;
    const auto [place, is_new] = frames_.try_emplace(key, frames_.size());
    if (is_new)
      told.frames.push_back(code ? wire::StackFrame{false, code->file, "", code->offset}
                                 : wire::StackFrame{true, python->file, python->name, python->line});
    told.stack.push_back({place->second});
  }
  for (const uint32_t range : stack.ranges)
    told.ranges.push_back(range_name(range));
  client_.ask(told);
}

} // namespace luthier
