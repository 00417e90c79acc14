// Empties maps of findings.
#pragma once

#include <map>
#include <utility>
#include <vector>

namespace luthier {

// Return the values of a map, and empty it.
template <typename Key, typename Value> std::vector<Value> take(std::map<Key, Value> &values_by_key) {
  std::vector<Value> all;
  all.reserve(values_by_key.size());
  for (auto &[key, value] : values_by_key)
    all.push_back(std::move(value));
  values_by_key.clear();
  return all;
}

} // namespace luthier
