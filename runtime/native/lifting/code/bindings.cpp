#include "../bindings.h"

#include "../../mc/columns.h"
#include "../../mc/isa.h"
#include "blocks.h"

#include <optional>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace luthier::code {
namespace {

/// How control leaves the instructions of each opcode, and its marks: asked of Python when one first occurs.
class OpcodeTraits {
public:
  struct Traits {
    Control control;
    uint8_t marks;
  };
  explicit OpcodeTraits(py::function traits_of) : traits_of_(std::move(traits_of)) {}
  Traits of(int32_t opcode) {
    const auto place = size_t(opcode);
    if (place < known_.size())
      if (const std::optional<Traits> &traits = known_[place])
        return *traits;
    const auto [control, marks] = traits_of_(opcode).cast<std::pair<int8_t, uint8_t>>();
    if (known_.size() <= place) // asked only now: in Python, another thread may have resized it
      known_.resize(place + 1);
    return known_[place].emplace(Traits{Control(control), marks});
  }

private:
  py::function traits_of_;
  std::vector<std::optional<Traits>> known_;
};

std::shared_ptr<Piece> make_piece(const Isa &isa, const py::bytes &code, int64_t start, OpcodeTraits &traits) {
  const std::string_view bytes = code;
  if (bytes.empty())
    throw std::invalid_argument("a piece without an instruction at its start");
  auto piece = std::make_shared<Piece>();
  auto decoded = std::make_shared<Instructions>();
  {
    const py::gil_scoped_release release;
    const llvm::ArrayRef<uint8_t> given(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size());
    *decoded = isa.decode(given, uint64_t(start), false);
  }
  piece->start = start;
  piece->end = start + int64_t(bytes.size());
  piece->count = int(decoded->opcode.size());
  piece->offset = decoded->offset.data();
  piece->size = decoded->size.data();
  piece->target = decoded->target.data();
  piece->control.resize(size_t(piece->count), Control::kNext);
  for (int index = 0; index < piece->count; ++index) {
    Control &control = piece->control[size_t(index)];
    if (const int32_t opcode = decoded->opcode[size_t(index)]; opcode >= 0) {
      const OpcodeTraits::Traits known = traits.of(opcode);
      control = known.control;
      piece->marks |= known.marks;
    } else if (!(decoded->flags[size_t(index)] & kLengthFlag)) {
      control = Control::kUndecodable;
    }
    if (control != Control::kNext)
      piece->stops.push_back(index);
  }
  piece->code = std::move(decoded);
  return piece;
}

std::shared_ptr<TextMap> make_text(const std::vector<std::pair<int64_t, int64_t>> &sections,
                                   const std::vector<std::pair<int64_t, int64_t>> &functions,
                                   std::vector<int64_t> starts, std::vector<int> first_unit) {
  auto text = std::make_shared<TextMap>();
  for (const auto &[first, end] : sections)
    text->sections.push_back({first, end});
  for (const auto &[first, end] : functions)
    text->functions.push_back({first, end});
  text->starts = std::move(starts);
  text->first_unit = std::move(first_unit);
  return text;
}

template <typename Numbers> py::tuple as_tuple(const Numbers &numbers) {
  py::tuple all(numbers.size());
  size_t at = 0;
  for (const auto number : numbers)
    all[at++] = number;
  return all;
}

py::object add_functions(Explorer &explorer, const std::vector<int64_t> &entries, const Explorer::Decode &decode) {
  return problem_of([&] {
    for (const int64_t entry : entries)
      explorer.add_function(entry, std::nullopt, entry, decode);
  });
}

py::list parts(Explorer &explorer) {
  py::list result;
  for (const Explorer::Part *part : explorer.parts())
    result.append(py::make_tuple(part->piece->start, part->count, part->end));
  return result;
}

/// Return the columns of all parts put together, with offsets from the first one's start.
py::tuple whole(Explorer &explorer) {
  auto all = std::make_shared<Instructions>();
  const std::vector<const Explorer::Part *> parts = explorer.parts();
  all->operand_start.push_back(0);
  for (const Explorer::Part *part : parts) {
    const Instructions &code = *part->piece->code;
    const auto operands = ptrdiff_t(code.operand_start[size_t(part->count)]);
    const int64_t begin = part->piece->start - parts.front()->piece->start;
    const auto before = int32_t(all->operand_kind.size());
    const auto append = [](auto &to, const auto &from, ptrdiff_t count) {
      to.insert(to.end(), from.begin(), from.begin() + count);
    };
    for (int index = 0; index < part->count; ++index) {
      all->offset.push_back(begin + code.offset[size_t(index)]);
      all->operand_start.push_back(before + code.operand_start[size_t(index) + 1]);
    }
    append(all->size, code.size, part->count);
    append(all->opcode, code.opcode, part->count);
    append(all->flags, code.flags, part->count);
    append(all->target, code.target, part->count);
    append(all->operand_kind, code.operand_kind, operands);
    append(all->operand_value, code.operand_value, operands);
  }
  return columns(std::move(all));
}

uint8_t marks_of(Explorer &explorer) {
  uint8_t marks = 0;
  for (const Explorer::Part *part : explorer.parts())
    marks |= part->piece->marks;
  return marks;
}

py::tuple cut(Explorer &explorer, const Explorer::Decode &decode) {
  std::shared_ptr<Blocks> blocks;
  py::object problem = problem_of([&] { blocks = std::make_shared<Blocks>(explorer, decode); });
  return py::make_tuple(py::cast(std::move(blocks)), problem);
}

template <typename Field> py::list listed(const Blocks &blocks, Field field) {
  py::list result(blocks.all.size());
  for (size_t number = 0; number < blocks.all.size(); ++number)
    result[number] = py::int_(int(field(blocks.all[number])));
  return result;
}

py::list successors(const Blocks &blocks, int number) {
  py::list result;
  for (const Block::Edge &edge : blocks.all.at(size_t(number)).successors)
    result.append(py::make_tuple(int(edge.kind), edge.to));
  return result;
}

/// Return block, targets, and fields of the resolution of each call and register jump.
py::list jumps(const Blocks &blocks) {
  py::list result;
  for (const Blocks::Jump &jump : blocks.jumps)
    result.append(py::make_tuple(jump.block, as_tuple(jump.targets),
                                 jump.resolution ? py::object(fields_of(*jump.resolution)) : py::object(py::none())));
  return result;
}

py::dict members(const Blocks &blocks) {
  py::dict result;
  for (const Blocks::Function &function : blocks.functions)
    result[py::int_(function.entry)] = function.members;
  return result;
}

/// Return the blocks in the order of functions; the place of each; as luthier.lifting.model has them; and for each of
/// `instructions` instructions the place of its block.
///
/// @param exits, kinds their names
/// @param make_block, make_edge luthier.lifting.BasicBlock and Edge
py::tuple arrange(const std::shared_ptr<Blocks> &blocks, int instructions, const py::tuple &exits,
                  const py::tuple &kinds, const py::object &make_block, const py::object &make_edge) {
  auto arranged = std::make_shared<ArrangedBlocks>(ArrangedBlocks{blocks, blocks->arrange()});
  const Blocks::Arrangement &arrangement = arranged->arrangement;
  py::list made(arranged->count());
  std::vector<int32_t> place_of(size_t(instructions), -1);
  for (size_t place = 0; place < arranged->count(); ++place) {
    const Block &block = arranged->at(place);
    std::fill(place_of.begin() + block.first, place_of.begin() + block.last + 1, int32_t(place));
    py::tuple successors(block.successors.size()), predecessors(arrangement.predecessors[place].size());
    for (size_t at = 0; at < successors.size(); ++at)
      successors[at] = make_edge(kinds[size_t(block.successors[at].kind)], arranged->to(block.successors[at]));
    for (size_t at = 0; at < predecessors.size(); ++at)
      predecessors[at] = arrangement.predecessors[place][at];
    made[place] = make_block(place, arrangement.owners[place], block.first, block.last, exits[size_t(block.exit)],
                             successors, predecessors);
  }
  return py::make_tuple(arranged, arrangement.numbers, made, column(std::move(place_of)));
}

} // namespace

py::object problem_of(const std::function<void()> &work) {
  try {
    work();
  } catch (const Problem &problem) {
    return py::make_tuple(problem.message, problem.address, problem.function, problem.number);
  }
  return py::none();
}

py::tuple fields_of(const Resolution &resolution) {
  return py::make_tuple(resolution.is_return, as_tuple(resolution.targets), resolution.reason,
                        as_tuple(resolution.references), as_tuple(resolution.slots), resolution.direct);
}

} // namespace luthier::code

void luthier::code::bind_code(py::module_ &m) {
  py::class_<OpcodeTraits>(m, "OpcodeTraits").def(py::init<py::function>(), py::arg("traits_of"));
  py::class_<Piece, std::shared_ptr<Piece>>(m, "Piece")
      .def(py::init(&make_piece), py::arg("isa"), py::arg("code"), py::arg("start"), py::arg("traits"))
      .def_readonly("end", &Piece::end)
      .def("__len__", [](const Piece &self) { return self.count; })
      .def("columns", [](const Piece &self) { return columns(self.code); });
  py::class_<TextMap, std::shared_ptr<TextMap>>(m, "TextMap")
      .def(py::init(&make_text), py::arg("sections"), py::arg("functions"), py::arg("starts"), py::arg("first_unit"))
      .def(
          "function",
          [](const TextMap &self, int64_t address) {
            const Range *range = self.function(address);
            return range ? std::optional(range->first) : std::nullopt;
          },
          py::arg("address"));
  py::class_<Explorer>(m, "Explorer")
      .def(py::init<std::shared_ptr<TextMap>, const Explorer *>(), py::arg("text"), py::arg("known"))
      .def_property_readonly("leaders", [](const Explorer &self) { return self.leaders.size(); })
      .def_property_readonly("links", [](const Explorer &self) { return self.links; })
      .def(
          "functions",
          [](const Explorer &self, size_t first) {
            std::vector<int64_t> entries;
            for (; first < self.functions.size(); ++first)
              entries.push_back(self.functions[first].entry);
            return entries;
          },
          py::arg("first"))
      .def("link_of", &Explorer::link_of, py::arg("register"))
      .def("add_functions", &add_functions, py::arg("entries"), py::arg("decode"))
      .def(
          "reach",
          [](Explorer &self, int64_t address, int64_t origin, const Explorer::Decode &decode) {
            return problem_of([&] { self.reach(address, origin, decode); });
          },
          py::arg("address"), py::arg("origin"), py::arg("decode"))
      .def_property_readonly("marks", &marks_of)
      .def("parts", &parts)
      .def("columns", &whole)
      .def("cut", &cut, py::arg("decode"));
  const py::class_<ArrangedBlocks, std::shared_ptr<ArrangedBlocks>> arranged(m, "ArrangedBlocks");
  py::class_<Blocks, std::shared_ptr<Blocks>>(m, "Blocks")
      .def("first", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.first; }); })
      .def("last", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.last; }); })
      .def("exits", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.exit; }); })
      .def("successors", &successors, py::arg("block"))
      .def("jumps", &jumps)
      .def("members", &members)
      .def("find_functions", &Blocks::find_functions, py::arg("explorer"), py::arg("roots"), py::arg("left"))
      .def("arrange", &arrange, py::arg("instructions"), py::arg("exits"), py::arg("kinds"), py::arg("block"),
           py::arg("edge"))
      .def("at", &Blocks::at, py::arg("address"));
}
