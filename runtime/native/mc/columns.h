// Native vectors as read-only NumPy arrays, which keep them alive.
#pragma once

#include "instructions.h"

#include <memory>
#include <pybind11/numpy.h>

namespace luthier {

/// Return a view of `values`.
/// @param owner keeps them alive
template <typename T> pybind11::array_t<T> view_of(const std::vector<T> &values, const pybind11::object &owner) {
  pybind11::array_t<T> array(static_cast<pybind11::ssize_t>(values.size()), values.data(), owner);
  pybind11::detail::array_proxy(array.ptr())->flags &= ~pybind11::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

template <typename T> pybind11::array_t<T> column(std::vector<T> &&values) {
  auto *owned = new std::vector<T>(std::move(values));
  return view_of(*owned, pybind11::capsule(owned, [](void *all) { delete static_cast<std::vector<T> *>(all); }));
}

/// Return the columns of luthier.isa.InstructionArray, from `offset` on.
inline pybind11::tuple columns(std::shared_ptr<const Instructions> all) {
  using Owner = std::shared_ptr<const Instructions>;
  const Instructions &code = *all;
  const pybind11::capsule owner(new Owner(std::move(all)), [](void *kept) { delete static_cast<Owner *>(kept); });
  return pybind11::make_tuple(view_of(code.offset, owner), view_of(code.size, owner), view_of(code.opcode, owner),
                              view_of(code.flags, owner), view_of(code.target, owner),
                              view_of(code.operand_start, owner), view_of(code.operand_kind, owner),
                              view_of(code.operand_value, owner));
}

} // namespace luthier
