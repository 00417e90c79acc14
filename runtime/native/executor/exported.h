// Functions that a library exports; its version script names them, too.
#pragma once

#define LUTHIER_EXPORT extern "C" __attribute__((visibility("default")))
