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

/// Remove the entries whose key passes a test.
template <typename Content, typename Test> void remove(std::map<AddressKey, Content> &entries, Test test) {
  for (auto at = entries.begin(); at != entries.end();)
    at = test(at->first) ? entries.erase(at) : std::next(at);
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
  if (const auto at = values_.find(key); at != values_.end())
    return at->second;
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
    values_[key] = std::move(values);
    held_.add(key.unit);
  } else {
    values_.erase(key);
  }
}

void AddressState::taint(AddressKey key, Taints taints) {
  if (key.unit < 0)
    return;
  taints_[key] = std::move(taints);
  tainted_units_.add(key.unit);
}

bool AddressState::join(const AddressState &other) {
  bool changed(other.unknown_ - unknown_);
  if (changed)
    forget(other.unknown_);
  std::vector<AddressKey> keys;
  for (const auto &[key, values] : values_)
    if (const auto at = other.values_.find(key); at == other.values_.end() || !same(values, at->second))
      keys.push_back(key);
  for (const auto &[key, values] : other.values_)
    if (!values_.count(key))
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
    const auto at = taints_.find(key);
    Taints both = at == taints_.end() ? Taints() : at->second;
    unite(both, taints);
    if (at != taints_.end() && both == at->second)
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
  remove(values_, [&](const AddressKey &key) { return units.has(key.unit); });
  held_ -= units;
}

void AddressState::overwrite(const Units &units, Units replaced) {
  forget(units);
  replaced &= tainted_units_ & kScalars;
  if (!replaced)
    return;
  tainted_units_ -= replaced;
  remove(taints_, [&](const AddressKey &key) { return key.lane < 0 && replaced.has(key.unit); });
}

Taints AddressState::tainted(const Units &units) const {
  Taints result;
  if (units & tainted_units_)
    for (const auto &[key, taints] : taints_)
      if (units.has(key.unit))
        unite(result, taints);
  return result;
}

const Taints *AddressState::taints(AddressKey key) const {
  const auto at = taints_.find(key);
  return at == taints_.end() ? nullptr : &at->second;
}

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
