// Ctrl-C during long native work.
#pragma once

namespace luthier {

/// To be called in loops that may go on for long, with or without the interpreter lock: lets Python answer signals now
/// and then, and throws what their handlers raise. Work that is soon done never asks for the lock.
void answerSignals();

} // namespace luthier
