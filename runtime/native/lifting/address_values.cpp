#include "address_values.h"

#include <iterator>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr size_t kMostOverPaths = 16; // values of one register; more make it unknown where paths meet

/// Return what a scalar unit holds at the function's entry.
const Values &entry_values(int unit) {
  static const std::vector<Values> all = [] {
    std::vector<Values> made;
    for (int each = 0; each < Vgpr; ++each) {
      Value value;
      value.kind = Value::Kind::kEntry;
      value.offset = uint64_t(each);
      made.push_back(values_of({value}));
    }
    return made;
  }();
  return all[size_t(unit)];
}

} // namespace

Values values_of(std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.size() > kMostValues)
    return nullptr;
  return std::make_shared<const std::vector<Value>>(std::move(values));
}

bool same(const Values &left, const Values &right) { return left == right || (left && right && *left == *right); }

void unite(Taints &into, const Taints &more) {
  Taints both;
  std::set_union(into.begin(), into.end(), more.begin(), more.end(), std::back_inserter(both));
  into = std::move(both);
}

Values AddressState::operator[](AddressKey key) const {
  if (const Values *known = values_.find(key))
    return *known;
  return key.unit >= 0 && key.is_scalar() && !unknown_.has(key.unit) ? entry_values(key.unit) : nullptr;
}

void AddressState::set(AddressKey key, Values values) {
  if (key.unit < 0)
    return;
  if (key.is_scalar()) {
    if (values)
      unknown_ -= pair_of_units(key.unit, 1);
    else
      unknown_.add(key.unit);
  }
  if (values) {
    values_.set(key, std::move(values));
    held_.add(key.unit);
  } else {
    values_.remove([&](const AddressKey &each) { return each == key; });
  }
}

void AddressState::taint(AddressKey key, Taints taints) {
  if (key.unit < 0)
    return;
  taints_.set(key, std::move(taints));
  tainted_units_.add(key.unit);
}

bool AddressState::join(const AddressState &other) {
  bool changed(other.unknown_ - unknown_);
  if (changed)
    forget(other.unknown_);
  std::vector<AddressKey> keys;
  for (const auto &[key, values] : values_)
    if (const Values *incoming = other.values_.find(key); !incoming || !same(values, *incoming))
      keys.push_back(key);
  for (const auto &[key, values] : other.values_)
    if (!values_.find(key))
      keys.push_back(key);
  for (const AddressKey key : keys) {
    const Values values = (*this)[key], incoming = other[key];
    if (!values || same(values, incoming))
      continue;
    std::vector<Value> both;
    if (incoming)
      std::set_union(values->begin(), values->end(), incoming->begin(), incoming->end(), std::back_inserter(both));
    const bool is_known = incoming && both.size() <= kMostOverPaths;
    if (is_known && both == *values)
      continue;
    set(key, is_known ? values_of(std::move(both)) : nullptr);
    changed = true;
  }
  for (const auto &[key, taints] : other.taints_) {
    const Taints *known = taints_.find(key);
    Taints both = known ? *known : Taints();
    unite(both, taints);
    if (known && both == *known)
      continue;
    taint(key, std::move(both));
    changed = true;
  }
  return changed;
}

void AddressState::forget(const Units &units) {
  unknown_ |= units & kScalars;
  if (!(units & held_))
    return;
  values_.remove([&](const AddressKey &key) { return units.has(key.unit); });
  held_ -= units;
}

void AddressState::overwrite(const Units &units, Units replaced) {
  forget(units);
  replaced &= tainted_units_ & kScalars;
  if (!replaced)
    return;
  tainted_units_ -= replaced;
  taints_.remove([&](const AddressKey &key) { return key.lane < 0 && replaced.has(key.unit); });
}

Taints AddressState::tainted(const Units &units) const {
  Taints result;
  if (units & tainted_units_)
    for (const auto &[key, taints] : taints_)
      if (units.has(key.unit))
        unite(result, taints);
  return result;
}

const Taints *AddressState::taints(AddressKey key) const { return taints_.find(key); }

Units AddressState::changed() const {
  Units result = unknown_;
  for (const auto &[key, values] : values_)
    if (key.is_scalar() && !same(values, entry_values(key.unit)))
      result.add(key.unit);
  return result;
}

size_t AddressState::size() const {
  size_t result = 0;
  for (const auto &[key, values] : values_)
    for (const Value &value : *values)
      result += 1 + value.loads.size();
  for (const auto &[key, taints] : taints_)
    result += taints.size();
  return result;
}

} // namespace luthier::LUTHIER_FLOW
