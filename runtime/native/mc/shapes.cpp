#include "shapes.h"

#include <algorithm>
#include <cstddef>

namespace luthier {
namespace {

/// The numbers in the fields of two probes: a first one and steps, all different, even, and valid for SGPRs, too.
constexpr std::array<std::pair<int64_t, int64_t>, 2> kProbes = {{{8, 16}, {64, 8}}};
constexpr int64_t kLastSgpr = 95; // of those that every processor has

} // namespace

void Shapes::Fields::add(unsigned shift, unsigned bits) {
  all[count++] = {uint8_t(shift), uint8_t(bits)};
  mask |= all[count - 1].mask();
}

uint64_t Shapes::Fields::filled(uint64_t word, int64_t first, int64_t step) const {
  word &= ~mask;
  for (size_t number = 0; number < count; ++number)
    word |= uint64_t(first + step * int64_t(number)) << all[number].shift;
  return word;
}

/// The encodings are those of the ISA documents, chapter "Microcode Formats"; which fields an instruction has, and
/// whether they are numbers of registers, is found by probes.
Shapes::Fields Shapes::fields_of(uint64_t word, size_t given) {
  Fields fields;
  const auto first = uint32_t(word);
  const auto add_source = [&](unsigned shift) { // 9 bits; from 256 on a VGPR
    if (word >> (shift + 8) & 1)
      fields.add(shift, 8);
  };
  if (given == 8) {
    add_vector_fields(fields, word);
  } else if (first >> 31 == 0) {
    const uint32_t encoding = first >> 25;
    add_source(0);
    if (encoding != 0x3f) // VOP1 has no second source
      fields.add(9, 8);
    if (encoding != 0x3e) // VOPC has no result
      fields.add(17, 8);
  } else {
    add_scalar_fields(fields, first);
  }
  return fields;
}

void Shapes::add_scalar_fields(Fields &fields, uint32_t first) {
  const auto add = [&](unsigned shift, unsigned bits) {
    if (Field{uint8_t(shift), uint8_t(bits)}.of(first) <= kLastSgpr)
      fields.add(shift, bits);
  };
  const uint32_t encoding = first >> 23;
  if (encoding == 0x17f) // SOPP
    return;
  if (encoding != 0x17e) // SOPC has no result
    add(16, 7);
  if (encoding >> 5 == 0xb && encoding != 0x17d && encoding != 0x17e) // SOPK has a constant
    return;
  add(0, 8);
  if (encoding != 0x17d) // SOP1 has no second source
    add(8, 8);
}

void Shapes::add_vector_fields(Fields &fields, uint64_t word) {
  const uint32_t encoding = uint32_t(word) >> 26;
  if (encoding >= 0x33 && encoding <= 0x35) { // VOP3, VOP3P
    fields.add(0, 8);
    for (const unsigned shift : {32u, 41u, 50u})
      if (word >> (shift + 8) & 1)
        fields.add(shift, 8);
  } else if (encoding == 0x36) { // DS
    for (const unsigned shift : {32u, 40u, 48u, 56u})
      fields.add(shift, 8);
  } else if (encoding == 0x37) { // FLAT
    for (const unsigned shift : {32u, 40u, 56u})
      fields.add(shift, 8);
  } else if (encoding == 0x38 || encoding == 0x3a) { // MUBUF, MTBUF
    for (const unsigned shift : {32u, 40u})
      fields.add(shift, 8);
  }
}

size_t Shapes::find(uint64_t word, size_t given, size_t most, Instructions &out) const {
  const Fields fields = fields_of(word, given);
  const uint64_t base = word & ~fields.mask;
  const Slot &slot = slots_[place_of(base, given)];
  if (slot.state != State::kLearned || slot.base != base || slot.given != given || slot.size > most ||
      (word & ~slot.varying) != slot.fixed)
    return 0;
  const size_t begin = out.operand_kind.size();
  for (size_t number = 0; number < slot.operands; ++number) {
    const Operand &operand = slot.operand[number];
    int64_t value = operand.value;
    if (operand.field != kNoField) {
      const int64_t index = fields.all[operand.field].of(word);
      value += index;
      if (!takes_(slot.opcode, number, value, index)) {
        out.operand_kind.resize(begin);
        out.operand_value.resize(begin);
        return 0;
      }
    }
    out.operand_kind.push_back(operand.kind);
    out.operand_value.push_back(value);
  }
  out.size.push_back(slot.size);
  out.opcode.push_back(slot.opcode);
  out.flags.push_back(slot.flags);
  out.operand_start.push_back(int32_t(out.operand_kind.size()));
  return slot.size;
}

void Shapes::note(uint64_t word, size_t given, const Instructions &from, const Decode &decode) {
  const Fields fields = fields_of(word, given);
  if (!fields.count)
    return;
  const uint64_t base = word & ~fields.mask;
  Slot &slot = slots_[place_of(base, given)];
  if (slot.state == State::kEmpty || slot.base != base || slot.given != given) {
    slot.base = base;
    slot.given = uint8_t(given);
    slot.state = State::kMet;
  } else if (slot.state == State::kMet) {
    slot.state = State::kRefused; // also if LLVM crashes on a probe
    learn(slot, fields, word, from, decode);
  }
}

void Shapes::learn(Slot &slot, const Fields &fields, uint64_t word, const Instructions &from,
                   const Decode &decode) const {
  const size_t last = from.opcode.size() - 1, first = size_t(from.operand_start[last]);
  const size_t operands = size_t(from.operand_start[last + 1]) - first;
  if (operands > kMostOperands)
    return;
  std::array<Instructions, kProbes.size()> probes;
  for (size_t number = 0; number < probes.size(); ++number) {
    const Instructions &probe = probes[number];
    if (!decode(fields.filled(word, kProbes[number].first, kProbes[number].second), probes[number]) ||
        probe.opcode.back() != from.opcode[last] || probe.size.back() != from.size[last] ||
        probe.operand_kind.size() != operands ||
        !std::equal(probe.operand_kind.begin(), probe.operand_kind.end(), from.operand_kind.begin() + ptrdiff_t(first)))
      return;
  }
  slot.varying = 0;
  slot.opcode = from.opcode[last];
  slot.flags = from.flags[last];
  slot.size = uint8_t(from.size[last]);
  slot.operands = uint8_t(operands);
  for (size_t number = 0; number < operands; ++number) {
    slot.operand[number].kind = from.operand_kind[first + number];
    if (!bind(slot, number, fields, word,
              {from.operand_value[first + number], probes[0].operand_value[number], probes[1].operand_value[number]}))
      return;
  }
  slot.fixed = word & ~slot.varying;
  slot.state = State::kLearned;
}

/// Find the field that determines an operand. Return false if none does so in the same way in all three.
/// @param values of the operand in the word and in both probes
bool Shapes::bind(Slot &slot, size_t number, const Fields &fields, uint64_t word,
                  const std::array<int64_t, 3> &values) const {
  Operand &operand = slot.operand[number];
  operand.value = values[0];
  operand.field = kNoField;
  if (values[1] == values[0] && values[2] == values[0])
    return true;
  for (size_t field = 0; field < fields.count; ++field) {
    const int64_t base = values[0] - fields.all[field].of(word);
    const auto is_probed = [&](size_t probe) {
      return values[probe + 1] - base == kProbes[probe].first + int64_t(field) * kProbes[probe].second;
    };
    if (operand.kind == kKindRegister && is_probed(0) && is_probed(1) &&
        takes_(slot.opcode, number, values[0], fields.all[field].of(word))) {
      operand.value = base;
      operand.field = uint8_t(field);
      slot.varying |= fields.all[field].mask();
      return true;
    }
  }
  return false;
}

} // namespace luthier
