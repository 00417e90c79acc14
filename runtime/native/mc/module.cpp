// Python bindings: luthier._mc. The typed interface for users is luthier.isa.
#include "isa.h"

#include "../lifting/bindings.h"
#include "amdgpu_private.h"
#include "columns.h"
#include "unit_numbers.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;
using namespace luthier;

namespace {

template <typename T> using In = py::array_t<T, py::array::c_style | py::array::forcecast>;

/// Columns from Python, with their lengths proven to agree before anything is read.
OperandColumns borrowed(const In<int32_t> &opcode, const In<int32_t> &start, const In<uint8_t> &kind,
                        const In<int64_t> &value) {
  if (opcode.ndim() != 1 || start.ndim() != 1 || kind.ndim() != 1 || value.ndim() != 1 ||
      start.size() != opcode.size() + 1 || kind.size() != value.size())
    throw McError("instruction columns have inconsistent lengths");
  return {opcode.data(), size_t(opcode.size()), start.data(), kind.data(), value.data(), size_t(kind.size())};
}

/// Decodes a buffer without the interpreter lock.
Instructions decoded(const Isa &isa, const py::buffer &code, uint64_t address, bool patient) {
  const py::buffer_info info = code.request();
  if (info.ndim != 1 || info.itemsize != 1 || (info.size > 1 && info.strides[0] != 1))
    throw McError("code must be one contiguous run of bytes");
  llvm::ArrayRef<uint8_t> bytes(static_cast<const uint8_t *>(info.ptr), size_t(info.size));
  py::gil_scoped_release release;
  return isa.decode(bytes, address, patient);
}

/// (offset, size, text, address it branches to) of every instruction; None for a text or an address that is not there.
py::list listing(const Isa &isa, const py::buffer &code, uint64_t address) {
  const Instructions all = decoded(isa, code, address, false);
  std::vector<int32_t> opcode, start{0};
  std::vector<uint8_t> kind;
  std::vector<int64_t> value, addresses;
  for (size_t i = 0; i < all.opcode.size(); ++i) {
    if (all.opcode[i] < 0)
      continue;
    const auto from = all.operand_start[i], to = all.operand_start[i + 1];
    opcode.push_back(all.opcode[i]);
    kind.insert(kind.end(), all.operand_kind.begin() + from, all.operand_kind.begin() + to);
    value.insert(value.end(), all.operand_value.begin() + from, all.operand_value.begin() + to);
    start.push_back(int32_t(kind.size()));
    addresses.push_back(all.offset[i] + int64_t(address));
  }
  const std::vector<std::string> texts =
      isa.print({opcode.data(), opcode.size(), start.data(), kind.data(), value.data(), kind.size()}, addresses.data());
  py::list rows;
  auto text = texts.begin();
  for (size_t i = 0; i < all.opcode.size(); ++i) {
    const bool good = all.opcode[i] >= 0;
    rows.append(py::make_tuple(all.offset[i], all.size[i], good ? py::object(py::str(*text++)) : py::none(),
                               all.target[i] == kNoTarget ? py::object(py::none()) : py::int_(all.target[i])));
  }
  return rows;
}

/// Return the numbers of VGPRs, AGPRs and SGPRs that a wave needs for the registers that instructions name (for SGPRs,
/// those that always have that name), and whether any accesses LDS, and any private memory by FLAT_SCRATCH.
py::tuple named_registers(const Isa &isa, const py::buffer &code, uint64_t address) {
  const Instructions all = decoded(isa, code, address, false);
  int vgprs = 0, agprs = 0, sgprs = 0;
  uint32_t flags = 0;
  for (const uint32_t each : all.flags)
    flags |= each;
  for (size_t i = 0; i < all.operand_kind.size(); ++i) {
    if (all.operand_kind[i] != kKindRegister)
      continue;
    const RegisterUnits named = isa.register_units(unsigned(all.operand_value[i]));
    const int end = named.first + named.count;
    if (named.first >= units::Agpr)
      agprs = std::max(agprs, end - units::Agpr);
    else if (named.first >= units::Vgpr)
      vgprs = std::max(vgprs, end - units::Vgpr);
    else if (named.first >= units::Sgpr && named.first < units::FlatScratchSgpr)
      sgprs = std::max(sgprs, end - units::Sgpr);
  }
  return py::make_tuple(vgprs, agprs, sgprs, (flags & kDsFlag) != 0, (flags & kScratchFlag) != 0);
}

py::tuple describe_opcode(const Isa &isa, unsigned opcode) {
  if (opcode >= isa.instructions().getNumOpcodes())
    throw McError("opcode " + std::to_string(opcode) + " does not exist");
  const llvm::MCInstrDesc &desc = isa.instructions().get(opcode);
  std::vector<std::string> named(desc.getNumOperands());
  // A few real opcodes are not in LLVM's table of names; the generic ones are.
  for (const unsigned each : {isa.generic_opcode(opcode), opcode})
    for (unsigned name = 0; name < operand_names().names.size(); ++name) {
      const int at = llvm::AMDGPU::getNamedOperandIdx(uint16_t(each), static_cast<llvm::AMDGPU::OpName>(name));
      if (at >= 0 && size_t(at) < named.size() &&
          (each == opcode || isa.instructions().get(each).getNumOperands() == named.size()))
        named[size_t(at)] = operand_names().names[name];
    }
  py::list operands;
  for (unsigned i = 0; i < desc.getNumOperands(); ++i) {
    const llvm::MCOperandInfo &info = desc.operands()[i];
    operands.append(py::make_tuple(named[i], i < desc.getNumDefs(), isa.tied_to(opcode, i), int(info.OperandType),
                                   isa.register_class(info)));
  }
  std::vector<uint32_t> uses(desc.implicit_uses().begin(), desc.implicit_uses().end());
  std::vector<uint32_t> defs(desc.implicit_defs().begin(), desc.implicit_defs().end());
  return py::make_tuple(isa.instructions().getName(opcode).str(), isa.mnemonic(opcode),
                        isa.instructions().getName(isa.generic_opcode(opcode)).str(), isa.generic_opcode(opcode),
                        operands, uses, defs, int(desc.getSize()), isa.flags(opcode), uint64_t(desc.TSFlags),
                        desc.isPseudo());
}

/// Return the opcode called `name`, -1 if there is none.
int opcode_number(const llvm::MCInstrInfo &instructions, llvm::StringRef name) {
  const auto numbers = llvm::seq(0u, instructions.getNumOpcodes());
  // LLVM puts opcodes with encodings at the end, sorted by name. The others, or all in another LLVM, are searched one
  // by one.
  const auto real = std::partition_point(numbers.begin(), numbers.end(),
                                         [&](unsigned each) { return instructions.get(each).isPseudo(); });
  const auto at =
      std::partition_point(real, numbers.end(), [&](unsigned each) { return instructions.getName(each) < name; });
  if (at != numbers.end() && instructions.getName(*at) == name)
    return int(*at);
  for (const unsigned each : numbers)
    if (instructions.getName(each) == name)
      return int(each);
  return -1;
}

} // namespace

PYBIND11_MODULE(_mc, m) {
  m.doc() = "LLVM's MC layer for AMDGPU. Use luthier.isa.";
  initialize_llvm();
  m.attr("LLVM_VERSION") = LLVM_VERSION_STRING;
  luthier::code::bind_code(m);
  luthier::flow256::bind_flow(m, "");
  luthier::flow1024::bind_flow(m, "Wide");

  static py::handle error = py::exception<McError>(m, "McError", PyExc_ValueError).release();
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer)
        std::rethrow_exception(pointer);
    } catch (const McError &problem) {
      py::object raised = error(problem.what(), problem.line);
      PyErr_SetObject(error.ptr(), raised.ptr());
    }
  });

  py::class_<Isa>(m, "Isa")
      .def(py::init<const std::string &, const std::string &>(), py::arg("cpu"), py::arg("features"))
      .def(
          "decode",
          [](const Isa &isa, const py::buffer &code, uint64_t address, bool patient) {
            return columns(std::make_shared<Instructions>(decoded(isa, code, address, patient)));
          },
          py::arg("code"), py::arg("address"), py::arg("patient") = false)
      .def("listing", &listing, py::arg("code"), py::arg("address"))
      .def("named_registers", &named_registers, py::arg("code"), py::arg("address"))
      .def(
          "encode",
          [](const Isa &isa, const In<int32_t> &opcode, const In<int32_t> &start, const In<uint8_t> &kind,
             const In<int64_t> &value) {
            auto [code, offsets] = isa.encode(borrowed(opcode, start, kind, value));
            return py::make_tuple(py::bytes(code), column(std::move(offsets)));
          },
          py::arg("opcode"), py::arg("operand_start"), py::arg("operand_kind"), py::arg("operand_value"))
      .def(
          "print",
          [](const Isa &isa, const In<int32_t> &opcode, const In<int32_t> &start, const In<uint8_t> &kind,
             const In<int64_t> &value, const In<int64_t> &addresses) {
            const OperandColumns given = borrowed(opcode, start, kind, value);
            if (addresses.ndim() != 1 || size_t(addresses.size()) != given.count)
              throw McError("instruction columns have inconsistent lengths");
            return isa.print(given, addresses.data());
          },
          py::arg("opcode"), py::arg("operand_start"), py::arg("operand_kind"), py::arg("operand_value"),
          py::arg("addresses"))
      .def(
          "assemble",
          [](const Isa &isa, const std::string &source) {
            AssemblyResult result = isa.assemble(source);
            py::list fixups;
            for (const Fixup &fixup : result.fixups)
              fixups.append(py::make_tuple(fixup.instruction, fixup.byte, fixup.kind, fixup.symbol, fixup.subtrahend,
                                           fixup.addend, fixup.modifier));
            return py::make_tuple(columns(std::make_shared<Instructions>(std::move(result.instructions))),
                                  py::bytes(result.code), result.labels, fixups);
          },
          py::arg("source"))
      .def("describe_opcode", &describe_opcode)
      .def(
          "vgpr_places",
          [](const Isa &isa, unsigned opcode) {
            if (opcode >= isa.instructions().getNumOpcodes())
              throw McError("no such opcode");
            return isa.vgpr_places(opcode);
          },
          py::arg("opcode"))
      .def_property_readonly("register_count", [](const Isa &isa) { return isa.registers().getNumRegs(); })
      .def("register",
           [](const Isa &isa, unsigned number) {
             if (number >= isa.registers().getNumRegs())
               throw McError("register " + std::to_string(number) + " does not exist");
             const RegisterUnits units = isa.register_units(number);
             return py::make_tuple(std::string(isa.registers().getName(llvm::MCRegister(number))),
                                   isa.register_text(number), units.first, units.count, units.half);
           })
      .def("register_units",
           [](const Isa &isa) {
             const unsigned count = isa.registers().getNumRegs();
             std::vector<int32_t> first(count), units(count);
             std::vector<uint8_t> half(count), encodes(count);
             for (unsigned i = 0; i < count; ++i) {
               const RegisterUnits unit = isa.register_units(i);
               first[i] = unit.first;
               units[i] = unit.count;
               half[i] = unit.half;
               encodes[i] = isa.encodes(i, unit);
             }
             return py::make_tuple(column(std::move(first)), column(std::move(units)), column(std::move(half)),
                                   column(std::move(encodes)));
           })
      .def("register_numbers",
           [](const Isa &isa) {
             py::dict all;
             for (unsigned i = 0; i < isa.registers().getNumRegs(); ++i)
               all[isa.registers().getName(llvm::MCRegister(i))] = i;
             return all;
           })
      .def("register_class_name",
           [](const Isa &isa, unsigned id) {
             if (id >= isa.registers().getNumRegClasses())
               throw McError("register class " + std::to_string(id) + " does not exist");
             return isa.registers().getRegClassName(&isa.registers().getRegClass(id));
           })
      .def("register_classes", [](const Isa &isa) {
        py::list all;
        for (unsigned i = 0; i < isa.registers().getNumRegClasses(); ++i) {
          const llvm::MCRegisterClass &register_class = isa.registers().getRegClass(i);
          std::vector<uint32_t> members(register_class.begin(), register_class.end());
          all.append(py::make_tuple(std::string(isa.registers().getRegClassName(&register_class)), members));
        }
        return all;
      });

  m.def("set_operand_names", &set_operand_names, py::arg("numbers"));
  m.def("opcode_names", [] {
    const std::unique_ptr<llvm::MCInstrInfo> instructions = instruction_info();
    py::list names;
    for (unsigned i = 0; i < instructions->getNumOpcodes(); ++i)
      names.append(instructions->getName(i).str());
    return names;
  });
  m.def(
      "opcode_numbers",
      [](const std::vector<std::string> &names) {
        const std::unique_ptr<llvm::MCInstrInfo> instructions = instruction_info();
        std::vector<int> numbers;
        numbers.reserve(names.size());
        for (const std::string &name : names)
          numbers.push_back(opcode_number(*instructions, name));
        return numbers;
      },
      py::arg("names"));
  m.def("demangle", [](const std::string &name) { return llvm::demangle(name); }, py::arg("name"));
  m.def("host", [] {
    std::vector<std::string> features;
    for (const auto &feature : llvm::sys::getHostCPUFeatures())
      features.push_back((feature.second ? "+" : "-") + feature.first().str());
    std::sort(features.begin(), features.end());
    return py::make_tuple(llvm::sys::getHostCPUName().str(), features);
  });
  m.def(
      "named_operand_positions",
      [](unsigned opcode, unsigned names) {
        std::vector<int> positions;
        positions.reserve(names);
        for (unsigned name = 0; name < names; ++name)
          positions.push_back(
              llvm::AMDGPU::getNamedOperandIdx(uint16_t(opcode), static_cast<llvm::AMDGPU::OpName>(name)));
        return positions;
      },
      py::arg("opcode"), py::arg("names"));
}
