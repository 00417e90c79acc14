#include "bindings.h"

#include "known_functions.h"
#include "liveness.h"

#include <map>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <stdexcept>
#include <string>

namespace py = pybind11;

namespace luthier::LUTHIER_FLOW {
namespace {

Units units_of(const py::bytes &bytes) {
  const std::string_view view = bytes;
  if (view.size() != kPublicBytes)
    throw std::invalid_argument("a set of units has " + std::to_string(kPublicBytes) + " bytes");
  PublicUnits given;
  std::memcpy(given.data(), view.data(), kPublicBytes);
  return to_set(given);
}

py::object integer(const Units &units) {
  const PublicUnits known = from_set(units);
  const auto *bytes = reinterpret_cast<const unsigned char *>(known.data());
  return py::reinterpret_steal<py::object>(_PyLong_FromByteArray(bytes, kPublicBytes, 1, 0));
}

template <typename T> using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

/// Instructions with the units their effects may touch. Keeps the columns alive.
struct BoundCode {
  std::shared_ptr<EffectTable> table;
  Column<int32_t> opcode, start;
  Column<uint8_t> kind;
  Column<int64_t> value;
  Units vectors, everything;
  Code code;
  py::ssize_t checked = 0; ///< instructions that `check_all` has seen

  BoundCode(std::shared_ptr<EffectTable> given, Column<int32_t> opcodes, Column<int32_t> starts, Column<uint8_t> kinds,
            Column<int64_t> values, const py::bytes &vector_units, const py::bytes &every_unit)
      : table(std::move(given)), opcode(std::move(opcodes)), start(std::move(starts)), kind(std::move(kinds)),
        value(std::move(values)), vectors(units_of(vector_units)), everything(units_of(every_unit)) {
    code = {opcode.data(), start.data(), kind.data(), value.data()};
    const py::ssize_t operands = value.size();
    if (start.size() != opcode.size() + 1 || kind.size() != operands || start.data()[0] != 0 ||
        start.data()[opcode.size()] != operands)
      throw std::invalid_argument("instruction columns have inconsistent lengths");
    for (py::ssize_t i = 0; i < operands; ++i)
      if (code.kind[i] == 1 && size_t(code.value[i]) >= table->masks.size())
        throw std::invalid_argument("no such register");
  }

  /// Check that effects of this instruction are known: its opcode is, and it has that opcode's operands.
  void check(py::ssize_t index) const {
    if (index < 0 || index >= opcode.size())
      throw py::index_error("no such instruction");
    const OpcodeForm *form = table->form(code.opcode[index]);
    if (!form || operands_of(code, int(index)).count < form->operands)
      throw std::invalid_argument("instruction " + std::to_string(index) + " has an opcode whose form was not given");
  }

  /// Check all instructions, once.
  void check_all() {
    for (; checked < opcode.size(); ++checked)
      check(checked);
  }

  py::tuple effects(py::ssize_t index) const {
    check(index);
    Effects out;
    effects_of(*table, *table->form(code.opcode[index]), operands_of(code, int(index)), vectors, everything, out);
    return py::make_tuple(integer(out.reads), integer(out.cross_reads), integer(out.writes), integer(out.kills),
                          integer(out.hard_kills), out.lanes);
  }

  /// Return what instructions `first` to `last` read, write and replace.
  py::tuple together(py::ssize_t first, py::ssize_t last) const {
    Effects out;
    Units reads, writes, kills;
    for (py::ssize_t index = first; index <= last; ++index) {
      answer_signals();
      check(index);
      effects_of(*table, *table->form(code.opcode[index]), operands_of(code, int(index)), vectors, everything, out);
      reads |= out.reads;
      writes |= out.writes;
      kills |= out.kills;
    }
    return py::make_tuple(integer(reads), integer(writes), integer(kills));
  }

  /// Opcodes here whose forms the table does not have yet, ascending.
  static std::vector<int32_t> missing(const EffectTable &table, const Column<int32_t> &opcodes) {
    std::set<int32_t> unknown;
    for (py::ssize_t i = 0; i < opcodes.size(); ++i)
      if (const int32_t opcode = opcodes.data()[i]; opcode >= 0 && !table.form(opcode))
        unknown.insert(opcode);
    return {unknown.begin(), unknown.end()};
  }
};

template <typename Number> size_t within(Number number, size_t limit, const char *what) {
  if (number < 0 || size_t(number) >= limit)
    throw std::invalid_argument(std::string("no such ") + what);
  return size_t(number);
}

/// The search for addresses in the functions of some blocks, with what it borrows.
struct BoundSearch {
  std::shared_ptr<BoundCode> code;
  py::object blocks;
  Column<int64_t> addresses;
  Column<int32_t> sizes;
  Column<uint32_t> roles;
  std::shared_ptr<KnownFunctions> known;
  py::function slot_value, table;
  bool computed;
  std::unique_ptr<AddressSearch> search = {};
  KnownFunctions::Work work = {}; ///< of the last analysis
  bool is_running = false;        ///< changed with the interpreter's lock only
};

/// The use of a search, which keeps what it finds, by one thread.
class Turn {
public:
  explicit Turn(BoundSearch &search) : search_(search) {
    if (search.is_running)
      throw std::runtime_error("this search is running already; make one for each thread");
    search.is_running = true;
  }
  ~Turn() { search_.is_running = false; }
  Turn(const Turn &) = delete;

private:
  BoundSearch &search_;
};

std::unique_ptr<BoundSearch> make_search(const std::shared_ptr<BoundCode> &code, const py::object &blocks,
                                         const Column<int64_t> &addresses, const Column<int32_t> &sizes,
                                         const Column<uint32_t> &roles, std::vector<int64_t> filled,
                                         const std::shared_ptr<code::TextMap> &text,
                                         const std::shared_ptr<KnownFunctions> &known, const py::function &slot_value,
                                         const py::function &table, bool computed) {
  const auto &all = blocks.cast<const code::Blocks &>();
  const py::ssize_t count = code->opcode.size();
  if (roles.size() != count || addresses.size() != count || sizes.size() != count ||
      (!all.all.empty() && all.all.back().last >= count))
    throw std::invalid_argument("blocks, roles and code are not of the same instructions");
  code->check_all();
  std::sort(filled.begin(), filled.end());
  auto result = std::make_unique<BoundSearch>(
      BoundSearch{code, blocks, addresses, sizes, roles, known, slot_value, table, computed});
  BoundSearch *search = result.get(); // which holds what is asked, and lives as long
  AddressWorld world;
  world.text = text;
  world.clobbers = [search](std::optional<int64_t> function) { return search->known->clobbers(function); };
  world.slot_value = [search](uint64_t word) {
    const py::gil_scoped_acquire lock;
    return search->slot_value(word).cast<std::optional<int64_t>>();
  };
  world.table = [search](uint64_t address) {
    const py::gil_scoped_acquire lock;
    return search->table(address).cast<std::optional<std::pair<uint64_t, uint64_t>>>();
  };
  search->search = std::make_unique<AddressSearch>(
      *code->table, AddressCode{code->code, addresses.data(), sizes.data(), roles.data()}, code->vectors,
      code->everything, all, std::move(filled), std::move(world));
  return result;
}

/// Analyse functions, and return the problem if there is one.
py::object analyse_functions(BoundSearch &self, const std::vector<int64_t> &functions, bool alone,
                             code::Explorer &explorer, const code::Explorer::Decode &decode,
                             const KnownFunctions::Pointed &pointed, const std::optional<std::vector<int>> &followed,
                             int64_t left) {
  const Turn turn(self);
  self.work = {};
  return code::problem_of([&] {
    const py::gil_scoped_release release;
    self.known->analyse(*self.search, functions, alone,
                        {explorer, decode, pointed, followed ? &*followed : nullptr,
                         self.computed ? self.code->vectors : Units(), left},
                        self.work);
  });
}

/// Return the references, and the program counters that are computed, escape and are values, of all functions.
py::tuple found_in_all(const KnownFunctions &self) {
  std::set<CounterReference> references;
  std::set<int64_t> computed, escapes, values;
  for (const auto &[function, result] : self.results) {
    references.insert(result->references.begin(), result->references.end());
    computed.insert(result->computed.begin(), result->computed.end());
    escapes.insert(result->escapes.begin(), result->escapes.end());
    values.insert(result->values.begin(), result->values.end());
  }
  return py::make_tuple(std::vector(references.begin(), references.end()), computed, escapes, values);
}

/// Return what was found in one function: resolutions, references, computed program counters, clobbers.
py::tuple found_in(const KnownFunctions &self, int64_t function) {
  const AddressSearch::Result &result = *self.results.at(function);
  py::dict resolutions;
  for (const auto &[address, resolution] : result.resolutions)
    resolutions[py::int_(address)] = code::fields_of(*resolution);
  return py::make_tuple(resolutions, result.references, result.computed, integer(result.clobbers));
}

/// A program and its masks, with its code.
struct BoundFlow {
  std::shared_ptr<BoundCode> code;
  Program program;
  int longest;            ///< instructions of a block; those of a longer one are followed as several
  std::vector<int> parts; ///< the first of these by block, and the end
  Segments segments;
  std::shared_ptr<LaneFlow> lanes;

  /// Return which of the program's blocks holds an instruction, or the end after the last, given by its block and
  /// number there.
  int part_of(int block, int offset) const {
    const size_t number = within(block, parts.size() - 1, "block");
    within(offset,
           size_t(program.blocks[size_t(parts[number + 1]) - 1].last - program.blocks[size_t(parts[number])].first) + 2,
           "instruction");
    return std::min(parts[number] + offset / longest, parts[number + 1] - 1);
  }
};

using CallRow = std::tuple<int, bool, bool, std::vector<int>>; // block, tail, known, callees
using FunctionRow = std::pair<int, std::vector<int>>;          // entry block, calls

/// reads, cross reads, writes, kills, hard kills, lanes, opaque, whether what is inserted sets lanes
using OverrideRow = std::tuple<py::bytes, py::bytes, py::bytes, py::bytes, py::bytes, int, bool, bool>;
using Overrides = std::map<int, OverrideRow>;

void set_overrides(Program &program, const BoundCode &code, const Overrides &overrides) {
  for (const auto &[index, row] : overrides) {
    const auto &[reads, cross, writes, kills, hard, lanes, opaque, sets_lanes] = row;
    code.check(index);
    program.overrides[index] = {
        {units_of(reads), units_of(cross), units_of(writes), units_of(kills), units_of(hard), uint8_t(lanes)},
        opaque,
        sets_lanes};
  }
}

void analyse(BoundFlow &flow) {
  flow.segments = cut_blocks(flow.program);
  if (!flow.lanes)
    flow.lanes = std::make_shared<LaneFlow>(flow.program, flow.segments);
}

void add_edge(Program &program, int from, const Edge &edge) {
  program.blocks[size_t(from)].successors.push_back(edge);
  program.blocks[size_t(edge.to)].predecessors.push_back(from);
}

/// Add a block; one that is longer than `longest` becomes several that fall through from one to the next.
void add_block(Program &program, int first, int last, Exit exit, int longest) {
  const size_t begin = program.blocks.size();
  for (; last - first >= longest; first += longest)
    program.blocks.push_back({first, first + longest - 1, Exit::kFallthrough, {}, {}, {}});
  program.blocks.push_back({first, last, exit, {}, {}, {}});
  for (size_t part = begin + 1; part < program.blocks.size(); ++part)
    add_edge(program, int(part) - 1, {int(part), false, true, true});
}

std::shared_ptr<BoundFlow> make_flow(const std::shared_ptr<BoundCode> &code, const code::ArrangedBlocks &blocks,
                                     const std::vector<FunctionRow> &functions, const std::vector<CallRow> &calls,
                                     const std::vector<int> &entries, const Overrides &overrides, int launched,
                                     bool unknown, int longest) {
  if (longest < 1)
    throw std::invalid_argument("blocks of no instruction");
  if (functions.size() != blocks.arrangement.functions.size())
    throw std::invalid_argument("blocks of other functions");
  auto flow = std::make_shared<BoundFlow>();
  flow->code = code;
  flow->longest = longest;
  Program &program = flow->program;
  program.table = code->table.get();
  program.code = code->code;
  program.vectors = code->vectors;
  program.everything = code->everything;
  program.launched = launched;
  program.unknown = unknown;
  for (size_t place = 0; place < blocks.count(); ++place) {
    const code::Block &block = blocks.at(place);
    for (int index = block.first; index <= block.last; ++index)
      code->check(index);
    flow->parts.push_back(int(program.blocks.size()));
    add_block(program, block.first, block.last, block.exit, longest);
  }
  flow->parts.push_back(int(program.blocks.size()));
  const auto first_of = [&](int block) { return flow->parts[within(block, flow->parts.size() - 1, "block")]; };
  const auto last_of = [&](int block) { return flow->parts[within(block, flow->parts.size() - 1, "block") + 1] - 1; };
  for (size_t place = 0; place < blocks.count(); ++place)
    for (const code::Block::Edge &edge : blocks.at(place).successors)
      add_edge(
          program, last_of(int(place)),
          {first_of(blocks.to(edge)), edge.kind == code::EdgeKind::kTaken, edge.kind == code::EdgeKind::kFallthrough});
  program.call_of.assign(program.blocks.size(), -1);
  for (const auto &[block, tail, known, callees] : calls) {
    program.call_of[size_t(last_of(block))] = int(program.calls.size());
    for (const int callee : callees)
      within(callee, functions.size(), "function");
    program.calls.push_back({last_of(block), tail, known, callees});
  }
  for (const auto &[entry, made] : functions) {
    std::vector<int> own;
    for (const int block : blocks.arrangement.functions[program.functions.size()])
      for (int part = first_of(block); part <= last_of(block); ++part) {
        program.blocks[size_t(part)].owners.push_back(int(program.functions.size()));
        own.push_back(part);
      }
    for (const int call : made)
      within(call, calls.size(), "call");
    program.functions.push_back({first_of(entry), own, made});
  }
  for (const int block : entries)
    program.entries.push_back(first_of(block));
  for (const Block &block : program.blocks)
    if (block.exit == Exit::kTail && program.call_of[size_t(&block - program.blocks.data())] < 0)
      throw std::invalid_argument("a tail call without callees");
  set_overrides(program, *code, overrides);
  py::gil_scoped_release release;
  analyse(*flow);
  return flow;
}

/// Return the same program with other effects of some instructions; `keep_lanes` where they do not change what is known
/// of masks.
std::shared_ptr<BoundFlow> changed(const BoundFlow &flow, const Overrides &overrides, bool keep_lanes) {
  auto result = std::make_shared<BoundFlow>();
  result->code = flow.code;
  result->program = flow.program;
  result->longest = flow.longest;
  result->parts = flow.parts;
  set_overrides(result->program, *flow.code, overrides);
  if (keep_lanes)
    result->lanes = flow.lanes;
  py::gil_scoped_release release;
  analyse(*result);
  return result;
}

/// Return groups of lanes in a block: its segments, over its call, after it, along its edges. A block that is followed
/// as several is reported as one: if a part ends without a change of EXEC, the next continues with the same groups.
py::tuple lanes_in(const BoundFlow &flow, int block) {
  const size_t number = within(block, flow.parts.size() - 1, "block");
  std::vector<SegmentLanes> segments;
  for (int part = flow.parts[number]; part < flow.parts[number + 1]; ++part)
    for (const SegmentLanes &segment : flow.lanes->blocks[size_t(part)].segments) {
      const bool first = &segment == &flow.lanes->blocks[size_t(part)].segments.front();
      if (first && part > flow.parts[number] && segments.back().spread.empty())
        segments.back().spread = segment.spread;
      else
        segments.push_back(segment);
    }
  const auto tuple = [](const SegmentLanes &segment) {
    return py::make_tuple(segment.groups, segment.on, segment.own, segment.outside, segment.spread);
  };
  py::list rows;
  for (const SegmentLanes &segment : segments)
    rows.append(tuple(segment));
  const BlockLanes &last = flow.lanes->blocks[size_t(flow.parts[number + 1]) - 1];
  return py::make_tuple(rows, last.call, tuple(last.behind), last.edges);
}

/// Liveness with the flow it was made from.
struct BoundLiveness {
  std::shared_ptr<BoundFlow> flow;
  std::unique_ptr<Liveness> liveness;
  std::unordered_map<int, std::vector<Live>> kept = {}; ///< points of blocks
  size_t kept_points = 0;
};

/// Points of a kernel that are kept, 16 megabytes; beyond, all are dropped.
constexpr size_t kMostPoints = (16 << 20) / sizeof(Live);

std::unique_ptr<BoundLiveness> make_liveness(const std::shared_ptr<BoundFlow> &flow, const py::bytes &touched) {
  const Units units = units_of(touched);
  auto result = std::make_unique<BoundLiveness>();
  result->flow = flow;
  py::gil_scoped_release release;
  result->liveness = std::make_unique<Liveness>(flow->program, flow->segments, *flow->lanes, units);
  return result;
}

/// Return the live units of active and of inactive lanes before an instruction, given by its block and number there.
py::tuple live_at(BoundLiveness &self, int block, int offset) {
  const int part = self.flow->part_of(block, offset);
  const std::vector<Block> &blocks = self.flow->program.blocks;
  const int point = blocks[size_t(self.flow->parts[size_t(block)])].first + offset - blocks[size_t(part)].first;
  if (point == 0) {
    const Live live = self.liveness->at_start(part);
    return py::make_tuple(integer(live.active), integer(live.inactive));
  }
  if (self.kept_points > kMostPoints) {
    self.kept.clear();
    self.kept_points = 0;
  }
  auto at = self.kept.find(part);
  if (at == self.kept.end()) {
    at = self.kept.emplace(part, self.liveness->points(part)).first;
    self.kept_points += at->second.size();
  }
  const Live &live = at->second[size_t(point)];
  return py::make_tuple(integer(live.active), integer(live.inactive));
}

/// Return what is live before instructions, each given by its block and its number there: active lanes, then inactive
/// ones; for each word of a set in the common numbering; for each instruction.
py::array_t<uint64_t> columns(const BoundLiveness &self, const Column<int32_t> &blocks,
                              const Column<int32_t> &offsets) {
  const size_t count = size_t(blocks.size());
  if (size_t(offsets.size()) != count)
    throw std::invalid_argument("blocks and offsets have different lengths");
  constexpr size_t kWords = kPublicBytes / sizeof(uint64_t);
  py::array_t<uint64_t> result({size_t(2), kWords, count});
  uint64_t *at = result.mutable_data();
  std::map<int, std::vector<size_t>> in_part;
  for (size_t i = 0; i < count; ++i)
    in_part[self.flow->part_of(blocks.data()[i], offsets.data()[i])].push_back(i);
  for (const auto &[part, wanted] : in_part) {
    answer_signals();
    const std::vector<Live> points = self.liveness->points(part);
    for (const size_t i : wanted) {
      const Block &whole = self.flow->program.blocks[size_t(self.flow->parts[size_t(blocks.data()[i])])];
      const int index = whole.first + offsets.data()[i];
      const Live &live = points[size_t(index - self.flow->program.blocks[size_t(part)].first)];
      const PublicUnits active = from_set(live.active), inactive = from_set(live.inactive);
      for (size_t word = 0; word < kWords; ++word) {
        at[word * count + i] = active[word];
        at[(kWords + word) * count + i] = inactive[word];
      }
    }
  }
  return result;
}

Special special_of(const std::string &name) {
  static const std::map<std::string, Special> names = {
      {"", Special::kNone},
      {"dpp", Special::kDpp},
      {"sdwa", Special::kSdwa},
      {"getreg", Special::kGetHardware},
      {"setreg", Special::kSetHardware},
      {"relative vector", Special::kRelativeVector},
      {"relative scalar", Special::kRelativeScalar},
      {"coordinates", Special::kCoordinates},
      {"everything", Special::kEverything},
  };
  return names.at(name);
}

MaskKind mask_kind_of(const std::string &name) {
  static const std::map<std::string, MaskKind> names = {
      {"other", MaskKind::kOther},      {"logic", MaskKind::kLogic},
      {"save", MaskKind::kSave},        {"write", MaskKind::kWrite},
      {"select", MaskKind::kSelect},    {"keep", MaskKind::kKeep},
      {"compare", MaskKind::kCompare},  {"compare_exec", MaskKind::kCompareExec},
      {"put_lane", MaskKind::kPutLane}, {"get_lane", MaskKind::kGetLane},
  };
  return names.at(name);
}

void tell(EffectTable &table, int32_t opcode, const py::dict &given) {
  auto form = std::make_unique<OpcodeForm>();
  const auto take = [&](const char *name, auto &into) { into = given[name].cast<std::decay_t<decltype(into)>>(); };
  take("reads", form->reads);
  take("full_writes", form->full_writes);
  take("partial_writes", form->partial_writes);
  form->implicit_reads = units_of(given["implicit_reads"].cast<py::bytes>());
  form->implicit_writes = units_of(given["implicit_writes"].cast<py::bytes>());
  form->implicit_kills = units_of(given["implicit_kills"].cast<py::bytes>());
  take("cross_lane", form->cross_lane);
  take("ignores_exec", form->ignores_exec);
  take("writes_anywhere", form->writes_anywhere);
  take("stores", form->stores);
  form->special = special_of(given["special"].cast<std::string>());
  take("row_mask", form->row);
  take("bank_mask", form->bank);
  take("bound_ctrl", form->bound);
  take("dst_sel", form->select);
  take("dst_unused", form->unused);
  take("simm16", form->hardware);
  take("tfe", form->failure);
  take("lwe", form->warning);
  take("vaddr", form->address);
  take("coordinates", form->coordinates);
  take("lanes", form->lanes);
  take("lanes_if_ones", form->lanes_if_ones);
  take("lanes_if_first", form->lanes_if_first);
  take("lanes_if_second", form->lanes_if_second);
  take("half_of_exec", form->half_of_exec);
  form->mask = mask_kind_of(given["mask"].cast<std::string>());
  take("table", form->table);
  take("width", form->width);
  form->empty_way = int8_t(given["empty_way"].cast<int>());
  take("operands", form->operands);
  const std::vector<const std::vector<uint8_t> *> positions = {&form->reads, &form->full_writes, &form->partial_writes};
  for (const std::vector<uint8_t> *each : positions)
    for (const uint8_t position : *each)
      within(int(position), size_t(form->operands), "operand");
  for (const int position : {form->row, form->bank, form->bound, form->select, form->unused, form->hardware,
                             form->failure, form->warning, form->address})
    if (position >= form->operands)
      throw std::invalid_argument("no such operand");
  if (form->special == Special::kCoordinates && form->address < 0)
    throw std::invalid_argument("no operand has the coordinates");
  if (table.forms.size() <= size_t(opcode))
    table.forms.resize(size_t(opcode) + 1);
  table.forms[size_t(opcode)] = std::move(form);
}

} // namespace

void bind_flow(py::module_ &m, const std::string &prefix) {
  const auto named = [&](const char *name) { return prefix + name; };
  py::class_<EffectTable, std::shared_ptr<EffectTable>>(m, named("EffectTable").c_str())
      .def(py::init<std::vector<int32_t>, std::vector<int32_t>, std::vector<uint8_t>, bool>(), py::arg("first_unit"),
           py::arg("unit_count"), py::arg("half"), py::arg("wide"))
      .def("tell", &tell, py::arg("opcode"), py::arg("form"))
      .def("missing", &BoundCode::missing, py::arg("opcodes"))
      .def(
          "code",
          [](std::shared_ptr<EffectTable> table, Column<int32_t> opcode, Column<int32_t> start, Column<uint8_t> kind,
             Column<int64_t> value, const py::bytes &vectors, const py::bytes &everything) {
            return std::make_shared<BoundCode>(std::move(table), std::move(opcode), std::move(start), std::move(kind),
                                               std::move(value), vectors, everything);
          },
          py::arg("opcode"), py::arg("operand_start"), py::arg("operand_kind"), py::arg("operand_value"),
          py::arg("vectors"), py::arg("everything"));
  py::class_<BoundCode, std::shared_ptr<BoundCode>>(m, named("Code").c_str())
      .def("effects", &BoundCode::effects, py::arg("index"))
      .def("together", &BoundCode::together, py::arg("first"), py::arg("last"))
      .def("address_search", &make_search, py::arg("blocks"), py::arg("addresses"), py::arg("sizes"), py::arg("roles"),
           py::arg("filled"), py::arg("text").none(false), py::arg("known").none(false), py::arg("slot_value"),
           py::arg("table"), py::arg("computed"))
      .def("flow", &make_flow, py::arg("blocks"), py::arg("functions"), py::arg("calls"), py::arg("entries"),
           py::arg("overrides"), py::arg("launched"), py::arg("unknown"), py::arg("longest"));
  py::class_<BoundSearch>(m, named("AddressSearch").c_str())
      .def_property_readonly("changed", [](const BoundSearch &self) { return self.work.changed; })
      .def_property_readonly("spent", [](const BoundSearch &self) { return self.work.spent; })
      .def_property_readonly("searches", [](const BoundSearch &self) { return self.work.searches; })
      .def("analyse", &analyse_functions, py::arg("functions"), py::arg("alone"), py::arg("explorer"),
           py::arg("decode"), py::arg("pointed"), py::arg("followed"), py::arg("left"));
  py::class_<SearchCache, std::shared_ptr<SearchCache>>(m, named("SearchCache").c_str())
      .def(py::init<size_t>(), py::arg("most"))
      .def("__len__", &SearchCache::size);
  py::class_<KnownFunctions, std::shared_ptr<KnownFunctions>>(m, named("KnownFunctions").c_str())
      .def(py::init<std::shared_ptr<SearchCache>, std::vector<int64_t>>(), py::arg("cache"), py::arg("entries"))
      .def(
          "connect",
          [](const KnownFunctions &self, code::Blocks &blocks, const code::Explorer &explorer) {
            blocks.connect(explorer, self.resolutions);
          },
          py::arg("blocks"), py::arg("explorer"))
      .def("found", &found_in_all)
      .def("found_in", &found_in, py::arg("function"));
  py::class_<BoundFlow, std::shared_ptr<BoundFlow>>(m, named("Flow").c_str())
      .def("changed", &changed, py::arg("overrides"), py::arg("keep_lanes"))
      .def("liveness", &make_liveness, py::arg("touched"))
      .def("lanes", &lanes_in, py::arg("block"));
  py::class_<BoundLiveness>(m, named("Liveness").c_str())
      .def("at", live_at, py::arg("block"), py::arg("offset"))
      .def("columns", columns, py::arg("blocks"), py::arg("offsets"));
}

} // namespace luthier::LUTHIER_FLOW
