// Shadow of memory: the last accesses of each dword, or of each byte if parts of dwords are accessed.
//
// Lanes of a wave mostly access adjacent memory with the same earlier accesses. So these are kept once for all of it (a
// history), and a cell has the number of its history, and lanes. A line of which consecutive lanes have accessed all
// dwords has no cells: its first dword is enough.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace luthier {

// An access: the segment of a wave that it is in (ordering.h), 0 for none, and its record.
struct Touch {
  uint32_t segment = 0, record = 0;
  uint64_t bits() const { return std::bit_cast<uint64_t>(*this); }
  bool operator==(const Touch &other) const { return bits() == other.bits(); }
};

// The accesses in a history: the last write and atomic; the last read, the last one by another wave of the same
// work-group, and the last one by another work-group.
enum Role : unsigned { kLastWrite, kLastAtomic, kLastRead, kReadByOther, kReadElsewhere, kRoles };

struct History {
  std::array<Touch, kRoles> by;
  // The work-group that read what the last write replaced, if another one wrote; 0: none.
  uint32_t readers = 0;
  bool operator==(const History &) const = default;
};

inline constexpr uint32_t kSeveral = ~uint32_t{0}; // instead of a work-group

// All histories of cells, by number. 0 is the history of untouched cells.
class Histories {
public:
  Histories() : all_(1) {}
  const History &operator[](uint32_t number) const { return all_[number].history; }
  // Return a history, with any contents, for which to find a number next. References to others are invalid then.
  History &draft();
  // Return the number of a recent history that is equal to the draft, or of the draft as a new one.
  uint32_t find();
  // Note that `cells` cells changed from one history to another.
  void move(uint32_t from, uint32_t to, uint32_t cells) {
    all_[to].cells += cells;
    ++all_[to].moves;
    ++all_[from].moves;
    if (from && (all_[from].cells -= cells) == 0)
      left_.push_back(from);
  }
  // Return how many cells have a history, and a count of the changes of which cells these are.
  uint32_t cells(uint32_t number) const { return all_[number].cells; }
  uint64_t moves(uint32_t number) const { return all_[number].moves; }
  // Return a history to change it for all cells that have it.
  History &of_all_cells(uint32_t number) { return all_[number].history; }
  // Forget the histories that no cell has: their numbers may be reused.
  void collect() {
    if (!left_.empty())
      free_left();
  }

private:
  struct Entry {
    History history;
    uint32_t cells = 0;
    uint64_t moves = 0;
    bool free = false;
  };
  void free_left();

  static constexpr unsigned kRecent = 8;

  std::vector<Entry> all_;
  std::vector<uint32_t> left_, free_;
  uint32_t draft_ = 0;                      // 0: none
  std::array<uint64_t, kRecent> digests_{}; // of histories
  std::array<uint32_t, kRecent> recent_{};  // their numbers
  unsigned next_ = 0;                       // in `recent_`
};

// Lanes of a cell's accesses: six bits for each role.
inline constexpr unsigned kLaneBits = 6;
inline constexpr uint32_t lane_field(unsigned role) { return ((1u << kLaneBits) - 1) << role * kLaneBits; }
inline unsigned lane_of(uint32_t lanes, unsigned role) { return (lanes & lane_field(role)) >> role * kLaneBits; }

// Return how many of the first numbers, of at least one, are equal.
inline unsigned equal_ones(const uint32_t *numbers, unsigned count) {
  constexpr unsigned kAtOnce = 16;
  unsigned equal = 1;
  for (; equal + kAtOnce <= count; equal += kAtOnce) {
    uint32_t different = 0;
    for (unsigned index = 0; index < kAtOnce; ++index)
      different |= numbers[equal + index] ^ numbers[0];
    if (different)
      break;
  }
  while (equal < count && numbers[equal] == numbers[0])
    ++equal;
  return equal;
}

// Memory for cells, which is reused after its owner.
class CellArena {
public:
  ~CellArena();
  uint32_t *take(size_t cells) {
    if (left_ < cells)
      grow();
    left_ -= cells;
    return next_ += cells, next_ - cells;
  }
  size_t bytes() const { return chunks_.size() * kChunk * sizeof(uint32_t); }

private:
  static constexpr size_t kChunk = 1 << 16; // cells
  void grow();

  std::vector<std::unique_ptr<uint32_t[]>> chunks_;
  uint32_t *next_ = nullptr;
  size_t left_ = 0;
};

class Shadow {
public:
  explicit Shadow(Histories &histories) : histories_(histories) {}
  static constexpr uint64_t kPage = 4096, kLine = 128;
  // Cells that lie side by side, each of 1 << `shift` bytes, from an address on.
  struct Span {
    uint32_t *histories, *lanes;
    unsigned count, shift;
    unsigned step() const { return 1u << shift; } // bytes
    uint64_t address;
  };
  // A line whose dwords have one history. Each lane has accessed 1 << `shift` dwords, from those of `lanes` on.
  struct Whole {
    uint32_t history = 0, lanes = 0;
    uint8_t shift = 0;
    unsigned lane(unsigned dword, unsigned role) const {
      return (lane_of(lanes, role) + (dword >> shift)) % (1u << kLaneBits);
    }
  };
  static constexpr unsigned kDwords = kLine / 4;
  // Call `each(span)` for the cells of those bytes; `parts`: parts of dwords are used; `writes`: they may be written.
  // Where they are all bytes of a line without cells, call `each_whole(line, address)` first: the line gets cells if
  // that returns false.
  template <typename Each, typename EachWhole>
  void visit(uint64_t address, uint64_t size, bool parts, bool writes, Each each, EachWhole each_whole) {
    for (const uint64_t end = address + size; address < end;) {
      const uint64_t bytes = std::min(end, (address | (kLine - 1)) + 1) - address;
      Line &line = find(address, writes);
      if (line.cells || bytes != kLine || !each_whole(line.whole, address)) {
        if (!line.cells)
          fill(line);
        if (parts && !line.in_bytes)
          split(line);
        const unsigned shift = line.in_bytes ? 0 : 2, cells = kLine >> shift;
        uint32_t *first = line.cells + ((address & (kLine - 1)) >> shift);
        each(Span{first, first + cells, static_cast<unsigned>(bytes >> shift), shift, address});
      }
      address += bytes;
    }
  }

  // What is known of the bytes of one line.
  struct View {
    uint64_t address;
    const uint32_t *cells; // null if the line has none
    Whole whole;
    unsigned shift; // of the size of a cell
    unsigned count() const { return kLine >> shift; }
    uint32_t history(unsigned byte) const { return cells ? cells[byte >> shift] : whole.history; }
    unsigned lane(unsigned byte, unsigned role) const {
      return cells ? lane_of(cells[count() + (byte >> shift)], role) : whole.lane(byte / 4, role);
    }
    // Return the number of bytes, from one on, that have the same history.
    unsigned alike(unsigned byte) const {
      return cells ? equal_ones(cells + (byte >> shift), count() - (byte >> shift)) << shift : kLine - byte;
    }
  };
  // Call `each(view)` for all touched lines of a page, given by its number.
  template <typename Each> void each_line(uint64_t page, Each each) const {
    const Page *const its = pages_[place_of(page)].page;
    for (unsigned index = 0; its && index < kPage / kLine; ++index)
      if (const Line &line = its->lines[index]; line.is_touched())
        each(view(page * kPage + index * kLine, line));
  }
  // Return the view of the line at an address; nothing if it is untouched.
  std::optional<View> line(uint64_t address) const {
    const Page *const page = pages_[place_of(address / kPage)].page;
    if (!page)
      return std::nullopt;
    const Line &line = page->lines[address % kPage / kLine];
    return line.is_touched() ? std::optional(view(address, line)) : std::nullopt;
  }
  // Return whether a page was visited to write to it.
  bool is_written(uint64_t page) const {
    const Page *const its = pages_[place_of(page)].page;
    return its && its->written;
  }
  // Return the numbers of the touched pages, in order.
  std::vector<uint64_t> pages() const;
  // Return the size of what is kept, in bytes.
  size_t bytes() const { return arena_.bytes() + pages_.size() * sizeof(Known); }

private:
  struct Line {
    uint32_t *cells = nullptr; // numbers of histories, then lanes; null: `whole` has all
    Whole whole;
    bool in_bytes = false;
    bool is_touched() const { return cells || whole.history; }
  };
  struct Page {
    Line lines[kPage / kLine];
    bool written = false;
  };
  static View view(uint64_t address, const Line &line) {
    return {address, line.cells, line.whole, line.in_bytes ? 0u : 2u};
  }
  Line &find(uint64_t address, bool writes) {
    const uint64_t number = address / kPage;
    Known &known = known_[number % known_.size()];
    if (known.number != number)
      known = {number, &page(number)};
    known.page->written |= writes;
    return known.page->lines[address % kPage / kLine];
  }
  struct Known {
    uint64_t number = ~uint64_t{0};
    Page *page = nullptr;
  };
  // Return the place in `pages_` of a page, or the free one for it.
  size_t place_of(uint64_t number) const {
    size_t place = (number * 0x9E37'79B9'7F4A'7C15 >> 32) & (pages_.size() - 1);
    while (pages_[place].page && pages_[place].number != number)
      place = (place + 1) % pages_.size();
    return place;
  }
  Page &page(uint64_t number);
  void grow_pages();
  void fill(Line &line);
  void split(Line &line);

  Histories &histories_;
  CellArena arena_;
  std::vector<Known> pages_ = std::vector<Known>(64); // by a digest of the number; a power of two, at most half used
  size_t page_count_ = 0;
  std::array<Known, 64> known_;
};

} // namespace luthier
