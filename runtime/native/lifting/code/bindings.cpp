#include "../bindings.h"

#include "blocks.h"

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace luthier::code {
namespace {

template <typename T> using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

std::shared_ptr<Piece> make_piece(int64_t start, int64_t end, const Column<int64_t> &offset,
                                  const Column<int32_t> &size, const Column<int64_t> &target,
                                  const Column<int8_t> &control) {
  if (size.size() != offset.size() || target.size() != offset.size() || control.size() != offset.size())
    throw std::invalid_argument("instruction columns have inconsistent lengths");
  if (!offset.size() || offset.data()[0] != 0)
    throw std::invalid_argument("a piece without an instruction at its start");
  auto piece = std::make_shared<Piece>();
  piece->start = start;
  piece->end = end;
  piece->count = int(offset.size());
  piece->offset = offset.data();
  piece->size = size.data();
  piece->target = target.data();
  piece->control = reinterpret_cast<const Control *>(control.data());
  piece->columns =
      std::make_shared<std::tuple<py::object, py::object, py::object, py::object>>(offset, size, target, control);
  for (int index = 0; index < piece->count; ++index)
    if (piece->control[index] != Control::kNext)
      piece->stops.push_back(index);
  return piece;
}

std::shared_ptr<TextMap> make_text(const std::vector<std::pair<int64_t, int64_t>> &sections,
                                   const std::vector<std::pair<int64_t, int64_t>> &functions,
                                   std::vector<int64_t> starts) {
  auto text = std::make_shared<TextMap>();
  for (const auto &[first, end] : sections)
    text->sections.push_back({first, end});
  for (const auto &[first, end] : functions)
    text->functions.push_back({first, end});
  text->starts = std::move(starts);
  return text;
}

/// Run `work`. @returns null, or the problem: message, address, function, number
py::object problem_of(const std::function<void()> &work) {
  try {
    work();
  } catch (const Problem &problem) {
    return py::make_tuple(problem.message, problem.address, problem.function, problem.number);
  }
  return py::none();
}

py::tuple reach(Explorer &explorer, int64_t address, int64_t origin, const Explorer::Decode &decode) {
  py::object problem = problem_of([&] { explorer.reach(address, origin, decode); });
  py::list calls;
  for (const Explorer::Call &call : explorer.calls)
    calls.append(py::make_tuple(call.target, call.piece, call.index));
  explorer.calls.clear();
  return py::make_tuple(calls, problem);
}

py::list parts(Explorer &explorer) {
  py::list result;
  for (const Explorer::Part *part : explorer.parts())
    result.append(py::make_tuple(part->piece->start, part->count, part->end));
  return result;
}

py::tuple cut(Explorer &explorer, const Explorer::Decode &decode) {
  std::unique_ptr<Blocks> blocks;
  py::object problem = problem_of([&] { blocks = std::make_unique<Blocks>(explorer, decode); });
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

/// Return the contents of some blocks without the targets of their register jumps: addresses of first and last
/// instructions, and of successors.
py::bytes shape(const Blocks &blocks, const std::vector<int> &members) {
  std::vector<int64_t> words;
  for (const int member : members) {
    const Block &block = blocks.all.at(size_t(member));
    words.insert(words.end(), {block.address, block.last_address, int64_t(block.successors.size())});
    for (const Block::Edge &edge : block.successors)
      words.push_back(blocks.all[size_t(edge.to)].address);
  }
  return py::bytes(reinterpret_cast<const char *>(words.data()), words.size() * sizeof(int64_t));
}

/// Return the places of blocks in the order of functions; the blocks in that order, as luthier.lifting.model has them;
/// for each of `instructions` instructions the place of its block.
///
/// @param exits, kinds their names
/// @param make_block, make_edge luthier.lifting.BasicBlock and Edge
py::tuple arrange(const Blocks &blocks, const std::vector<std::vector<int>> &functions, int instructions,
                  const py::tuple &exits, const py::tuple &kinds, const py::object &make_block,
                  const py::object &make_edge) {
  const Blocks::Arrangement arrangement = blocks.arrange(functions);
  py::list made(arrangement.order.size());
  std::vector<int32_t> place_of(size_t(instructions), -1);
  for (size_t place = 0; place < arrangement.order.size(); ++place) {
    const Block &block = blocks.all[size_t(arrangement.order[place])];
    std::fill(place_of.begin() + block.first, place_of.begin() + block.last + 1, int32_t(place));
    py::tuple successors(block.successors.size()), predecessors(arrangement.predecessors[place].size());
    for (size_t at = 0; at < successors.size(); ++at)
      successors[at] =
          make_edge(kinds[size_t(block.successors[at].kind)], arrangement.numbers[size_t(block.successors[at].to)]);
    for (size_t at = 0; at < predecessors.size(); ++at)
      predecessors[at] = arrangement.predecessors[place][at];
    made[place] = make_block(place, arrangement.owners[place], block.first, block.last, exits[size_t(block.exit)],
                             successors, predecessors);
  }
  return py::make_tuple(arrangement.numbers, made, py::array_t<int32_t>(py::ssize_t(place_of.size()), place_of.data()));
}

void lead(Blocks &blocks, int block, int exit, int kind, const std::vector<int64_t> &targets) {
  if (exit < 0 || exit > int(Exit::kUnknown) || kind < 0 || kind > int(EdgeKind::kIndirect))
    throw std::invalid_argument("no such exit, or no such kind of edge");
  blocks.lead(block, Exit(exit), EdgeKind(kind), targets);
}

} // namespace
} // namespace luthier::code

void luthier::code::bind_code(py::module_ &m) {
  py::class_<Piece, std::shared_ptr<Piece>>(m, "Piece")
      .def(py::init(&make_piece), py::arg("start"), py::arg("end"), py::arg("offset"), py::arg("size"),
           py::arg("target"), py::arg("control"));
  py::class_<TextMap, std::shared_ptr<TextMap>>(m, "TextMap")
      .def(py::init(&make_text), py::arg("sections"), py::arg("functions"), py::arg("starts"))
      .def(
          "function",
          [](const TextMap &self, int64_t address) {
            const Range *range = self.function(address);
            return range ? std::optional(range->first) : std::nullopt;
          },
          py::arg("address"));
  py::class_<Explorer>(m, "Explorer")
      .def(py::init<std::shared_ptr<TextMap>>(), py::arg("text"))
      .def_property_readonly("leaders", [](const Explorer &self) { return self.leaders.size(); })
      .def("reach", &reach, py::arg("address"), py::arg("origin"), py::arg("decode"))
      .def("parts", &parts)
      .def("cut", &cut, py::arg("decode"));
  py::class_<Blocks>(m, "Blocks")
      .def("first", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.first; }); })
      .def("last", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.last; }); })
      .def("exits", [](const Blocks &self) { return listed(self, [](const Block &block) { return block.exit; }); })
      .def("successors", &successors, py::arg("block"))
      .def("jumps",
           [](const Blocks &self) {
             py::list result;
             for (const Blocks::Jump &jump : self.jumps) {
               const Block &block = self.all[size_t(jump.block)];
               result.append(
                   py::make_tuple(jump.block, int(jump.control), block.address, block.last_address, jump.target));
             }
             return result;
           })
      .def("lead", &lead, py::arg("block"), py::arg("exit"), py::arg("kind"), py::arg("targets"))
      .def("shape", &shape, py::arg("members"))
      .def("arrange", &arrange, py::arg("functions"), py::arg("instructions"), py::arg("exits"), py::arg("kinds"),
           py::arg("block"), py::arg("edge"))
      .def("at", &Blocks::at, py::arg("address"))
      .def("reach", &Blocks::reach, py::arg("roots"));
}
