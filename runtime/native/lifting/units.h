// Sets of register units, as bits; the numbering is that of docs/architecture.md, "Vocabulary of registers".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace luthier::flow {

constexpr int UnitLimit = 768, UnitWords = UnitLimit / 64, UnitBytes = UnitLimit / 8;
constexpr int VccLo = 106, M0 = 124, ExecLo = 126, ExecHi = 127, Scc = 128, Mode = 129, FlatScratchLo = 130,
              FlatScratchHi = 131, VgprFirst = 256;

/// Several sets of units side by side: `Sets` is 1, or 3 where liveness is followed with unknowns.
template <int Sets> struct Bits {
  static constexpr int Words = UnitWords * Sets;
  std::array<uint64_t, Words> word{};

  bool operator==(const Bits &other) const { return word == other.word; }
  bool operator!=(const Bits &other) const { return word != other.word; }
  Bits &operator|=(const Bits &other) {
    for (int i = 0; i < Words; ++i)
      word[i] |= other.word[i];
    return *this;
  }
  Bits &operator&=(const Bits &other) {
    for (int i = 0; i < Words; ++i)
      word[i] &= other.word[i];
    return *this;
  }
  /// Takes out what is in `other`.
  Bits &operator-=(const Bits &other) {
    for (int i = 0; i < Words; ++i)
      word[i] &= ~other.word[i];
    return *this;
  }
  friend Bits operator|(Bits one, const Bits &other) { return one |= other; }
  friend Bits operator&(Bits one, const Bits &other) { return one &= other; }
  friend Bits operator-(Bits one, const Bits &other) { return one -= other; }
  explicit operator bool() const {
    uint64_t any = 0;
    for (const uint64_t one : word)
      any |= one;
    return any != 0;
  }
  bool has(int unit) const { return word[size_t(unit) / 64] >> (unit % 64) & 1; }
  void add(int unit) { word[size_t(unit) / 64] |= uint64_t(1) << (unit % 64); }
  void add(int first, int count) {
    for (int unit = first; unit < first + count; ++unit)
      add(unit);
  }
  /// The lowest member, -1 where there is none.
  int lowest() const {
    for (int i = 0; i < Words; ++i)
      if (word[i])
        return i * 64 + __builtin_ctzll(word[i]);
    return -1;
  }
};

using Units = Bits<1>;
using TripleUnits = Bits<3>;

/// Units of words `first` up to, not including, `last`.
constexpr Units wordsBetween(int first, int last) {
  Units units;
  for (int i = first; i < last; ++i)
    units.word[size_t(i)] = ~uint64_t(0);
  return units;
}

constexpr int ScalarWords = VgprFirst / 64;
/// Every unit with one value a wave; the others have one value a lane.
constexpr Units Scalars = wordsBetween(0, ScalarWords), Vectors = wordsBetween(ScalarWords, UnitWords);
constexpr Units AllUnits = wordsBetween(0, UnitWords);

inline Units unitsFrom(const unsigned char *bytes) {
  Units units;
  std::memcpy(units.word.data(), bytes, UnitBytes);
  return units;
}

inline Units pairOfUnits(int first, int count) {
  Units units;
  units.add(first, count);
  return units;
}

} // namespace luthier::flow
