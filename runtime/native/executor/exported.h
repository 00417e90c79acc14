// Functions that a library gives to others by name; its map of versions names them, too.
#pragma once

#define LUTHIER_EXPORT extern "C" __attribute__((visibility("default")))
