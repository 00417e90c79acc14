#include "interrupts.h"

#include <chrono>
#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace luthier {

void answer_signals() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::milliseconds(100);
  constexpr unsigned kCallsBetweenLooks = 16; // at the clock
  thread_local unsigned calls = 0;
  thread_local Clock::time_point answered = Clock::now();
  if (++calls % kCallsBetweenLooks)
    return;
  const Clock::time_point now = Clock::now();
  if (now - answered < kPatience)
    return;
  answered = now;
  const py::gil_scoped_acquire lock;
  if (PyErr_CheckSignals())
    throw py::error_already_set();
}

} // namespace luthier
