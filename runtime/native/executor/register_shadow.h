// Undefined bits of a wave's registers, which are behind the wave (layout::launch::shadow).
//
// Code for waves of which all registers are defined (layout::ALL_DEFINED) neither reads nor writes them.
#pragma once

namespace luthier {

// Mark the registers that are undefined when a wave begins, by its launch.
void start_register_shadow(const char *launch, char *wave);
// A wave of which all registers were defined gets undefined bits: from now on its code tracks registers.
void track_registers(char *wave);
// Look for undefined bits in a wave's registers. If there are none, its code need not track registers.
void search_registers(char *wave);

} // namespace luthier
