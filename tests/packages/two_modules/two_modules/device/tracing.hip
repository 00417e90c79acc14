/// Keeps an address.
LUTHIER_HOOK_ANNOTATE trace(uint64_t address) {
  uint32_t slot = luthier::sAtomicAdd<uint32_t>(&next_slot, STEP);
  slots[slot % SLOTS] = address;
}
