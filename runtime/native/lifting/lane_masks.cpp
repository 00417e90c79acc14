#include "lane_masks.h"

#include <algorithm>
#include <limits>

namespace luthier::LUTHIER_FLOW {
namespace {

constexpr int kOwnWeight = 64; // weight of knowledge about the entry mask against that about another mask

} // namespace

// Origins

int Origins::of(Key key) const {
  if (key < Vgpr)
    return scalars_[size_t(key)] == kOwn ? key : scalars_[size_t(key)];
  const auto at = std::lower_bound(lanes_.begin(), lanes_.end(), std::pair<Key, int16_t>(key, INT16_MIN));
  return at != lanes_.end() && at->first == key ? at->second : kNone;
}

void Origins::set(Key key, int origin) {
  if (!is_lane(key)) {
    scalars_[size_t(key)] = int16_t(origin);
    return;
  }
  const auto at = std::lower_bound(lanes_.begin(), lanes_.end(), std::pair<Key, int16_t>(key, INT16_MIN));
  if (at != lanes_.end() && at->first == key)
    at->second = int16_t(origin);
  else
    lanes_.insert(at, {key, int16_t(origin)});
}

void Origins::forget(const Units &writes) {
  if (!lanes_.empty())
    lanes_.erase(std::remove_if(lanes_.begin(), lanes_.end(),
                                [&](const auto &entry) { return writes.has(unit_of(entry.first)); }),
                 lanes_.end());
  for (int i = 0; i < kScalarWords; ++i)
    for (uint64_t rest = writes.word[size_t(i)]; rest; rest &= rest - 1)
      scalars_[size_t(i) * 64 + size_t(__builtin_ctzll(rest))] = kNone;
}

bool Origins::join(const Origins &other) {
  bool changed = false;
  const auto agree = [&](Key key) {
    const int own = of(key);
    if (own != kNone && own != other.of(key)) {
      set(key, kNone);
      changed = true;
    }
  };
  for (Key key = 0; key < Vgpr; ++key)
    agree(key);
  for (size_t i = 0; i < lanes_.size(); ++i) // lanes that only `other` knows have no origin here
    agree(lanes_[i].first);
  return changed;
}

Units Origins::changed() const {
  Units units;
  for (int unit = 0; unit < Vgpr; ++unit)
    if (of(unit) != unit)
      units.add(unit);
  return units;
}

// Registers

LaneMasks::LaneMasks(bool wide, bool moved) : wide_(wide) {
  if (moved)
    origins.emplace();
}

LaneMasks LaneMasks::nowhere(const LaneMasks &like, const Units &keep) {
  LaneMasks state = like;
  state.count = 0;
  state.on = 0;
  state.own = {};
  state.held_.clear();
  for (const Entry &entry : like.held_)
    if (keep.has(unit_of(entry.key)))
      state.held_.push_back({entry.key, {entry.held.half, {}}});
  return state;
}

std::optional<Held> LaneMasks::held(Key key) const {
  const auto at = std::lower_bound(held_.begin(), held_.end(), key,
                                   [](const Entry &entry, Key wanted) { return entry.key < wanted; });
  if (at == held_.end() || at->key != key)
    return std::nullopt;
  return at->held;
}

void LaneMasks::store(Key key, const Held &value) {
  const auto at = std::lower_bound(held_.begin(), held_.end(), key,
                                   [](const Entry &entry, Key wanted) { return entry.key < wanted; });
  if (at != held_.end() && at->key == key)
    at->held = value;
  else
    held_.insert(at, {key, value});
}

Mask LaneMasks::mask(int source) const {
  const Mask nothing{0, everything()};
  if (source == kExecSource)
    return {on, on};
  if (source < 0)
    return source == kZero ? Mask{} : source == kOnes ? Mask{everything(), everything()} : nothing;
  const std::optional<Held> low = held(source);
  if (!low || low->half == 1)
    return nothing;
  if (!wide_)
    return low->mask;
  const std::optional<Held> high = held(source + 1);
  if (!high || high->half == 0)
    return nothing;
  return {low->mask.certain & high->mask.certain, low->mask.possible | high->mask.possible};
}

std::optional<Held> LaneMasks::half(int source) const {
  if (source < 0)
    return source == kUnknown ? std::nullopt : std::optional<Held>({kEitherHalf, mask(source)});
  if (source == kExecSource || (source == kExecSource + 1 && wide_))
    return Held{uint8_t(source - kExecSource), {on, on}};
  return held(source);
}

void LaneMasks::put(int unit, const Mask &value) {
  if (value == Mask{0, everything()})
    return;
  store(unit, {0, value});
  if (wide_)
    store(unit + 1, {1, value});
}

void LaneMasks::forget(const Units &writes) {
  held_.erase(
      std::remove_if(held_.begin(), held_.end(), [&](const Entry &entry) { return writes.has(unit_of(entry.key)); }),
      held_.end());
  if (origins)
    origins->forget(writes);
}

void LaneMasks::set(Key key, const std::optional<Held> &value, int origin) {
  if (value)
    store(key, *value);
  else
    held_.erase(std::remove_if(held_.begin(), held_.end(), [&](const Entry &entry) { return entry.key == key; }),
                held_.end());
  if (origins)
    origins->set(key, origin);
}

// EXEC

template <typename Change> void LaneMasks::rewrite(Change change) {
  own = change(own);
  for (Entry &entry : held_)
    entry.held.mask = change(entry.held.mask);
}

std::vector<Groups> LaneMasks::change_exec(const Mask &value, const std::vector<Learnt> &learnt) {
  std::vector<Groups> spread(static_cast<size_t>(count));
  for (int group = 0; group < count; ++group)
    spread[size_t(group)] = Groups(1) << group;
  on = value.possible;
  struct Split {
    Groups stays, leaves;
  };
  std::vector<Split> splits;
  each_group(value.possible & ~value.certain, [&](int group) {
    splits.push_back({Groups(1) << group, Groups(1) << count});
    spread[size_t(group)] |= Groups(1) << count++;
  });
  if (splits.empty())
    return spread;
  const auto grow = [&](Groups groups) {
    for (const Split &split : splits)
      if (groups & split.stays)
        groups |= split.leaves;
    return groups;
  };
  rewrite([&](const Mask &mask) { return Mask{grow(mask.certain), grow(mask.possible)}; });
  for (const auto &[unit, relation] : learnt) {
    const auto &[on_without, on_with, off_without, off_with] = relation;
    auto [certain, possible] = mask(unit);
    for (const auto &[stays, leaves] : splits) {
      if (!(on_without & stays))
        certain |= stays;
      if (!(on_with & stays))
        possible &= ~stays;
      if (!(off_without & stays))
        certain |= leaves;
      if (!(off_with & stays))
        possible &= ~leaves;
    }
    put(unit, {certain, possible});
  }
  return spread;
}

// Fewer groups

/// For each group, bit sets of the masks that hold all of it and of those that hold none. Bit 0 is `own`, the others
/// are registers in the order of some keys.
class LaneMasks::Signatures {
public:
  Signatures(const LaneMasks &state, const std::vector<Entry> &keys, int room)
      : words_(keys.size() / 64 + 1), inside_(words_ * size_t(room)), outside_(words_ * size_t(room)) {
    note(state, 0, state.own);
    auto at = state.held_.begin();
    for (size_t i = 0; i < keys.size(); ++i) { // both in ascending order
      while (at != state.held_.end() && at->key < keys[i].key)
        ++at;
      if (at != state.held_.end() && at->key == keys[i].key)
        note(state, i + 1, at->held.mask);
    }
  }

  size_t words() const { return words_; }
  uint64_t *inside(int group) { return inside_.data() + words_ * size_t(group); }
  uint64_t *outside(int group) { return outside_.data() + words_ * size_t(group); }

  /// The mask with this bit, as the first `count` groups say.
  Mask mask(size_t bit, int count) {
    Mask result;
    for (int group = 0; group < count; ++group) {
      if (inside(group)[bit / 64] >> (bit % 64) & 1)
        result.certain |= Groups(1) << group;
      if (!(outside(group)[bit / 64] >> (bit % 64) & 1))
        result.possible |= Groups(1) << group;
    }
    return result;
  }

private:
  void note(const LaneMasks &state, size_t bit, const Mask &known) {
    each_group(known.certain, [&](int group) { inside(group)[bit / 64] |= uint64_t(1) << (bit % 64); });
    each_group(state.everything() & ~known.certain & ~known.possible,
               [&](int group) { outside(group)[bit / 64] |= uint64_t(1) << (bit % 64); });
  }

  size_t words_;
  std::vector<uint64_t> inside_, outside_;
};

void LaneMasks::compact(std::vector<Groups> &spread) {
  if (count <= kMostGroups)
    return;
  Signatures kinds(*this, held_, count);
  const size_t words = kinds.words(), bytes = words * sizeof(uint64_t);
  const auto active = [&](int group) { return on >> group & 1; };
  std::vector<int> left; // of each kind that is left, one group
  std::vector<int> to(static_cast<size_t>(count));
  for (int group = 0; group < count; ++group) {
    size_t kind = 0;
    while (kind < left.size() && (active(left[kind]) != active(group) ||
                                  std::memcmp(kinds.inside(left[kind]), kinds.inside(group), bytes) != 0 ||
                                  std::memcmp(kinds.outside(left[kind]), kinds.outside(group), bytes) != 0))
      ++kind;
    if (kind == left.size())
      left.push_back(group);
    to[size_t(group)] = int(kind);
  }
  while (left.size() > size_t(kMostGroups)) {
    int least = std::numeric_limits<int>::max(), i = -1, j = -1;
    for (int a = 0; a < int(left.size()); ++a) // of equally small differences, that of the first two
      for (int b = a + 1; b < int(left.size()); ++b) {
        const int first = left[size_t(a)], second = left[size_t(b)];
        if (active(first) != active(second))
          continue;
        int cost = 0;
        for (size_t w = 0; w < words; ++w) {
          const uint64_t apart =
              (kinds.inside(first)[w] ^ kinds.inside(second)[w]) | (kinds.outside(first)[w] ^ kinds.outside(second)[w]);
          cost += __builtin_popcountll(apart) + (w == 0 ? int(apart & 1) * kOwnWeight : 0);
        }
        if (cost < least) {
          least = cost;
          i = a;
          j = b;
        }
      }
    if (i < 0)
      break;
    for (size_t w = 0; w < words; ++w) {
      kinds.inside(left[size_t(i)])[w] &= kinds.inside(left[size_t(j)])[w];
      kinds.outside(left[size_t(i)])[w] &= kinds.outside(left[size_t(j)])[w];
    }
    left.erase(left.begin() + j);
    for (int &group : to)
      group = group == j ? i : group - (group > j);
  }
  if (int(left.size()) < count)
    renumber(to, int(left.size()));
  for (Groups &groups : spread) {
    Groups changed = 0;
    each_group(groups, [&](int group) { changed |= Groups(1) << to[size_t(group)]; });
    groups = changed;
  }
}

void LaneMasks::renumber(const std::vector<int> &to, int groups) {
  std::vector<Groups> members(static_cast<size_t>(groups));
  for (size_t old = 0; old < to.size(); ++old)
    members[size_t(to[old])] |= Groups(1) << old;
  const auto merge = [&](const Mask &mask) {
    Mask merged;
    for (size_t group = 0; group < members.size(); ++group) {
      if ((mask.certain & members[group]) == members[group])
        merged.certain |= Groups(1) << group;
      if (mask.possible & members[group])
        merged.possible |= Groups(1) << group;
    }
    return merged;
  };
  rewrite(merge);
  on = merge({on, on}).certain;
  count = groups;
}

// Joins

bool LaneMasks::includes(const LaneMasks &other) const {
  if (count != other.count || on != other.on || !(own == other.own) || !(origins == other.origins))
    return false;
  auto at = other.held_.begin();
  for (const Entry &entry : held_) {
    while (at != other.held_.end() && at->key < entry.key)
      ++at;
    if (at == other.held_.end() || at->key != entry.key || !(at->held == entry.held))
      return false;
  }
  return true;
}

/// Forget registers that have different halves in the two states.
bool LaneMasks::join_halves(const LaneMasks &other) {
  bool changed = false;
  std::vector<Entry> kept;
  kept.reserve(held_.size());
  for (Entry entry : held_) {
    const std::optional<Held> other_held = other.held(entry.key);
    if (other_held && other_held->half != entry.held.half && other_held->half != kEitherHalf) {
      changed = true;
      if (entry.held.half != kEitherHalf)
        continue;
      entry.held.half = other_held->half;
    }
    kept.push_back(entry);
  }
  if (changed)
    held_ = std::move(kept);
  return changed;
}

bool LaneMasks::join(const LaneMasks &other, Groups vacant, std::vector<int> &into) {
  into.clear();
  if (includes(other)) {
    for (int group = 0; group < count; ++group)
      into.push_back(vacant >> group & 1 ? -1 : group);
    return false;
  }
  bool changed = join_halves(other);
  Signatures signatures(*this, held_, count + other.count), other_signatures(other, held_, other.count);
  const size_t words = signatures.words();
  const int settled = count;
  for (int group = 0; group < other.count; ++group) {
    if (vacant >> group & 1) {
      into.push_back(-1);
      continue;
    }
    const uint64_t *inside = other_signatures.inside(group), *outside = other_signatures.outside(group);
    const Groups active = other.on >> group & 1;
    int best = -1;
    std::pair<int, int> least{1 << 20, 0}; // what is forgotten; the more is known, the better
    for (int candidate = 0; candidate < count; ++candidate) {
      if ((on >> candidate & 1) != active)
        continue;
      const uint64_t *a = signatures.inside(candidate), *b = signatures.outside(candidate);
      int loss = 0, apart = 0, known = 0;
      for (size_t w = 0; w < words; ++w) {
        const uint64_t lost = (a[w] & ~inside[w]) | (b[w] & ~outside[w]);
        loss += __builtin_popcountll(lost) + (w == 0 ? int(lost & 1) * kOwnWeight : 0);
        apart += __builtin_popcountll((a[w] ^ inside[w]) | (b[w] ^ outside[w]));
        known += __builtin_popcountll(a[w] | b[w]);
      }
      if (candidate >= settled && !loss) // do not blur a new group by a less known one
        loss = apart;
      if (std::pair(loss, -known) < least) {
        best = candidate;
        least = {loss, -known};
      }
    }
    if (best < 0 || (least.first && count < kMostJoined)) {
      best = count++;
      on |= active << best;
      std::copy(inside, inside + words, signatures.inside(best));
      std::copy(outside, outside + words, signatures.outside(best));
      changed = true;
    } else if (least.first) {
      for (size_t w = 0; w < words; ++w) {
        signatures.inside(best)[w] &= inside[w];
        signatures.outside(best)[w] &= outside[w];
      }
      changed = true;
    }
    into.push_back(best);
  }
  if (changed) {
    own = signatures.mask(0, count);
    const Mask nothing{0, everything()};
    std::vector<Entry> kept;
    kept.reserve(held_.size());
    for (size_t i = 0; i < held_.size(); ++i) {
      const Mask known = signatures.mask(i + 1, count);
      if (!(known == nothing))
        kept.push_back({held_[i].key, {held_[i].held.half, known}});
    }
    held_ = std::move(kept);
  }
  if (origins && other.origins && !(*origins == *other.origins))
    changed |= origins->join(*other.origins);
  return changed;
}

Mask evaluate(int table, const Mask &left, const Mask &right, Groups everything, std::array<Relation, 2> &about) {
  const Groups a[2] = {everything & ~left.certain, left.possible};
  const Groups b[2] = {everything & ~right.certain, right.possible};
  Groups where[2] = {0, 0};
  about = {};
  for (size_t x = 0; x < 2; ++x)
    for (size_t y = 0; y < 2; ++y) {
      const Groups both = a[x] & b[y];
      const bool result = table >> (2 * x + y) & 1;
      where[result] |= both;
      about[0][result ? x : 2 + x] |= both;
      about[1][result ? y : 2 + y] |= both;
    }
  return {everything & ~where[0], where[1]};
}

} // namespace luthier::LUTHIER_FLOW
