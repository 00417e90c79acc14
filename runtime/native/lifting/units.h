// Sets of register units, as bits.
//
// Most processors have 256 VGPRs, some 1,024, and the width of these sets decides the speed of data flow. So all of it
// is compiled twice (widths/), each time in a namespace of its own; a template parameter would have to be on every
// class and function. The numbering is that of docs/architecture.md, "Vocabulary of registers", except that AGPRs come
// right after the existing VGPRs: `to_set`, `from_set`.
#pragma once

#ifndef LUTHIER_VGPRS
#define LUTHIER_VGPRS 256
#define LUTHIER_FLOW flow256
#endif

#include "unit_numbers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace luthier::LUTHIER_FLOW {

using units::VccLo, units::M0, units::ExecLo, units::ExecHi, units::Scc, units::Mode, units::FlatScratchLo,
    units::FlatScratchHi, units::Untracked, units::Vgpr;

constexpr int kAgpr = Vgpr + LUTHIER_VGPRS, kSetUnits = kAgpr + units::Agprs;
constexpr int kUnitWords = kSetUnits / 64;

/// Several sets of units side by side: `Sets` is 1, or 3 where liveness is followed with unknowns.
template <int Sets> struct Bits {
  static constexpr int kWords = kUnitWords * Sets;
  std::array<uint64_t, kWords> word{};

  bool operator==(const Bits &other) const { return word == other.word; }
  bool operator!=(const Bits &other) const { return word != other.word; }
  Bits &operator|=(const Bits &other) {
    for (int i = 0; i < kWords; ++i)
      word[i] |= other.word[i];
    return *this;
  }
  Bits &operator&=(const Bits &other) {
    for (int i = 0; i < kWords; ++i)
      word[i] &= other.word[i];
    return *this;
  }
  /// Remove the members of `other`.
  Bits &operator-=(const Bits &other) {
    for (int i = 0; i < kWords; ++i)
      word[i] &= ~other.word[i];
    return *this;
  }
  friend Bits operator|(Bits left, const Bits &right) { return left |= right; }
  friend Bits operator&(Bits left, const Bits &right) { return left &= right; }
  friend Bits operator-(Bits left, const Bits &right) { return left -= right; }
  explicit operator bool() const {
    uint64_t any = 0;
    for (const uint64_t bits : word)
      any |= bits;
    return any != 0;
  }
  bool has(int unit) const { return word[size_t(unit) / 64] >> (unit % 64) & 1; }
  void add(int unit) { word[size_t(unit) / 64] |= uint64_t(1) << (unit % 64); }
  void add(int first, int count) {
    for (int unit = first; unit < first + count; ++unit)
      add(unit);
  }
  /// Return the lowest member, -1 if there is none.
  int lowest() const {
    for (int i = 0; i < kWords; ++i)
      if (word[i])
        return i * 64 + __builtin_ctzll(word[i]);
    return -1;
  }
};

using Units = Bits<1>;
using TripleUnits = Bits<3>;

/// Units of words `first` up to, not including, `last`.
constexpr Units words_between(int first, int last) {
  Units units;
  for (int i = first; i < last; ++i)
    units.word[size_t(i)] = ~uint64_t(0);
  return units;
}

constexpr int kScalarWords = Vgpr / 64;
/// Every unit with one value a wave; the others have one value a lane.
constexpr Units kScalars = words_between(0, kScalarWords), kVectors = words_between(kScalarWords, kUnitWords);
constexpr Units kAllUnits = words_between(0, kUnitWords);

/// Return the member of these sets for a unit's public number; -1 if the processor has no such unit.
constexpr int to_set(int unit) { return unit >= units::Agpr ? unit - units::Agpr + kAgpr : unit < kAgpr ? unit : -1; }

/// A set in the public numbering.
using PublicUnits = std::array<uint64_t, units::UnitLimit / 64>;
constexpr int kPublicBytes = sizeof(PublicUnits);

inline Units to_set(const PublicUnits &given) {
  Units result;
  std::copy_n(given.begin(), kAgpr / 64, result.word.begin());
  std::copy(given.begin() + units::Agpr / 64, given.end(), result.word.begin() + kAgpr / 64);
  return result;
}

inline PublicUnits from_set(const Units &set) {
  PublicUnits result{};
  std::copy_n(set.word.begin(), kAgpr / 64, result.begin());
  std::copy(set.word.begin() + kAgpr / 64, set.word.end(), result.begin() + units::Agpr / 64);
  return result;
}

inline Units pair_of_units(int first, int count) {
  Units units;
  units.add(first, count);
  return units;
}

} // namespace luthier::LUTHIER_FLOW
