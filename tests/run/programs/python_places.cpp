// Returns what is read of the interpreter's memory, one function a line, innermost first.
#include "python_frames.h"
#include "unwinder.h"

extern "C" const char *places() {
  using namespace luthier;
  static std::string text;
  find_python(loaded_objects().added);
  PythonPlace all[128];
  const size_t count = python_places(all, 128);
  text = why_no_python() ? why_no_python() : "";
  for (size_t number = 0; number < count; ++number) {
    const PythonFrame frame = python_frame(all[number]);
    text += frame.name + "|" + frame.file + "|" + std::to_string(frame.line) + "\n";
  }
  return text.c_str();
}
