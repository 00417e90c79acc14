#include "explorer.h"

#include "../../mc/interrupts.h"
#include "../../mc/isa.h"

#include <algorithm>
#include <cstring>

namespace luthier::code {
namespace {

/// The last range that begins at or before an address; null where there is none.
const Range *last_from(const std::vector<Range> &ranges, int64_t address) {
  const auto behind = std::upper_bound(ranges.begin(), ranges.end(), address,
                                       [](int64_t wanted, const Range &range) { return wanted < range.first; });
  return behind == ranges.begin() ? nullptr : &behind[-1];
}

/// The greatest number up to `most`, in ascending ones; `none` where there is none.
int64_t last_up_to(const std::vector<int64_t> &numbers, int64_t most, int64_t none) {
  const auto behind = std::upper_bound(numbers.begin(), numbers.end(), most);
  return behind == numbers.begin() ? none : behind[-1];
}

/// The least number beyond `least`, in ascending ones; `none` where there is none.
int64_t first_beyond(const std::vector<int64_t> &numbers, int64_t least, int64_t none) {
  const auto at = std::upper_bound(numbers.begin(), numbers.end(), least);
  return at == numbers.end() ? none : *at;
}

} // namespace

int Piece::index_of(int64_t address) const {
  const int64_t *at = std::lower_bound(offset, offset + count, address - start);
  return at != offset + count && *at == address - start ? int(at - offset) : -1;
}

const Range *TextMap::function(int64_t address) const {
  const Range *range = last_from(functions, address);
  return range && address < range->end ? range : nullptr;
}

bool TextMap::begins_function(int64_t address) const {
  const Range *range = last_from(functions, address);
  return range && range->first == address;
}

int64_t Piece::first_register(int index) const {
  const auto at = size_t(code->operand_start[size_t(index)]);
  const bool is_there = at < size_t(code->operand_start[size_t(index) + 1]);
  return is_there && code->operand_kind[at] == kKindRegister ? code->operand_value[at] : 0;
}

Explorer::Explorer(std::shared_ptr<const TextMap> text, const Explorer *known)
    : text_(std::move(text)), pieces_(known ? known->pieces_ : std::make_shared<decltype(pieces_)::element_type>()) {}

void Explorer::add_function(int64_t entry, std::optional<int> link, int64_t caller, const Decode &decode) {
  if (entry % 4)
    throw Problem{"call to the misaligned address", caller, {}, entry};
  if (note_function(entry))
    reach(entry, caller, decode);
  note_link(entry, link);
}

/// Return whether it is new.
bool Explorer::note_function(int64_t entry) {
  const bool is_new = places_.emplace(entry, functions.size()).second;
  if (is_new)
    functions.push_back({entry, {}});
  return is_new;
}

void Explorer::note_link(int64_t entry, std::optional<int> link) {
  if (link)
    links += functions[places_.at(entry)].links.insert(*link).second;
}

bool Explorer::leaves_function(int64_t source, int64_t target) const {
  const Range *around = text_->function(source);
  if (text_->begins_function(target))
    return !around || around->first != target;
  return places_.count(target) && (!around || target < around->first || target >= around->end);
}

std::optional<int> Explorer::link_of(int64_t number) const {
  const int unit = number >= 0 && size_t(number) < text_->first_unit.size() ? text_->first_unit[size_t(number)] : -1;
  return unit >= 0 ? std::optional(unit) : std::nullopt;
}

void Explorer::reach(int64_t address, int64_t origin, const Decode &decode) {
  go(address, origin);
  while (!work_.empty()) {
    answer_signals();
    const int64_t next = work_.back();
    work_.pop_back();
    run(next, decode);
  }
}

void Explorer::go(int64_t address, int64_t origin) {
  if (leaders.count(address))
    return;
  if (!text_->section(address))
    throw Problem{"control leaves the executable code for", origin, {}, address};
  leaders.insert(address);
  work_.push_back(address);
}

Explorer::Part &Explorer::part_at(int64_t start, const Decode &decode) {
  Part &part = parts_[start];
  if (!part.piece) {
    std::shared_ptr<Piece> &known = (*pieces_)[start];
    if (!known)
      known = decode(start, std::nullopt);
    part.piece = known;
  }
  return part;
}

Explorer::Place Explorer::locate(int64_t address, const Decode &decode) {
  const int64_t start = std::max(last_up_to(text_->starts, address, INT64_MIN), last_up_to(more_, address, INT64_MIN));
  Part &part = part_at(start, decode);
  const int index = part.piece->index_of(address);
  if (index >= 0)
    return {&part, index};
  if (address >= part.piece->end)
    throw Problem{"control leaves the executable code", address};
  // The linear decode has no instruction here, because data lies before it. Decode again from here.
  more_.insert(std::upper_bound(more_.begin(), more_.end(), address), address);
  const int64_t end = text_->section(address)->end;
  Part &fresh = parts_[address];
  fresh.piece =
      decode(address, std::min({end, first_beyond(text_->starts, address, end), first_beyond(more_, address, end)}));
  return {&fresh, 0};
}

/// Follow straight-line code to where control may leave it or to code seen before.
void Explorer::run(int64_t address, const Decode &decode) {
  while (true) {
    const auto [part, first] = locate(address, decode);
    const Piece &piece = *part->piece;
    part->reached.resize(size_t(piece.count));
    const auto stop_at = std::lower_bound(piece.stops.begin(), piece.stops.end(), first);
    const bool stops = stop_at != piece.stops.end();
    const int last = stops ? *stop_at : piece.count - 1;
    uint8_t *seen = part->reached.data();
    const auto *met = static_cast<uint8_t *>(std::memchr(seen + first, 1, size_t(last + 1 - first)));
    const int behind = met ? int(met - seen) : last + 1;
    std::fill(seen + first, seen + behind, uint8_t(1));
    const int64_t end = behind > first ? piece.behind(behind - 1) : address;
    const Range *function = text_->function(address);
    if (function && (end > function->end || (end == function->end && (met || !stops))))
      throw Problem{"control falls off the end of", function->end, function->first};
    if (met)
      return;
    if (stops)
      return leave(piece, last, decode);
    if (!text_->section(end))
      throw Problem{"control falls off the end of the executable code", end};
    if (text_->begins_function(end))
      throw Problem{"control falls into the function", end, end};
    address = end;
  }
}

void Explorer::leave(const Piece &piece, int index, const Decode &decode) {
  const Control control = piece.control[index];
  const int64_t address = piece.address(index), following = piece.behind(index), target = piece.target[index];
  if (control == Control::kUndecodable)
    throw Problem{"control reaches bytes that are no instruction", address};
  if (control == Control::kRefused)
    throw Problem{"", address};
  if (control == Control::kBranch || control == Control::kConditional || control == Control::kCall) {
    if (target == kNoTarget)
      throw Problem{"a branch whose target LLVM does not give", address};
    if (control == Control::kCall) {
      note_function(target);
      note_link(target, link_of(piece.first_register(index)));
    }
    go(target, address);
  }
  if (control == Control::kConditional) {
    check_fall(address, following);
    go(following, address);
  } else if (control == Control::kCall || control == Control::kCallRegister || control == Control::kTrap) {
    if (comes_back(address, following, decode))
      go(following, address);
  }
}

/// Refuse a fall-through from the last instruction of a function.
void Explorer::check_fall(int64_t address, int64_t following) const {
  const Range *function = text_->function(address);
  if (function && following >= function->end)
    throw Problem{"control falls off the end of", following, function->first};
  if (text_->begins_function(following))
    throw Problem{"control falls into the function", following, following};
}

bool Explorer::comes_back(int64_t address, int64_t following, const Decode &decode) {
  const Range *function = text_->function(address);
  if ((function && following >= function->end) || text_->begins_function(following) || !text_->section(following))
    return false;
  const auto [part, index] = locate(following, decode);
  const Control control = part->piece->control[index];
  return control != Control::kUndecodable && control != Control::kRefused;
}

std::vector<const Explorer::Part *> Explorer::parts() {
  std::vector<const Part *> result;
  for (auto &[start, part] : parts_) {
    if (part.reached.empty())
      continue;
    const Piece &piece = *part.piece;
    part.end =
        std::min({piece.end, first_beyond(text_->starts, start, piece.end), first_beyond(more_, start, piece.end)});
    part.count = int(std::lower_bound(piece.offset, piece.offset + piece.count, part.end - start) - piece.offset);
    result.push_back(&part);
  }
  return result;
}

} // namespace luthier::code
