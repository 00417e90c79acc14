// Empties maps of findings.
#pragma once

#include <map>
#include <utility>
#include <vector>

namespace luthier {

// Return the values of a map, and empty it.
template <typename Key, typename Value> std::vector<Value> take(std::map<Key, Value> &found) {
  std::vector<Value> all;
  all.reserve(found.size());
  for (auto &[key, value] : found)
    all.push_back(std::move(value));
  found.clear();
  return all;
}

} // namespace luthier
