"""Runs one operation's semantic function on arrays, with nothing of the machine around it."""

from __future__ import annotations

import ctypes
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import DeclaredOperation, Form, OperandSpec
from luthier.emulator.ir.exact import MASK, SCC
from luthier.emulator.ir.values import TypedValue, flatten
from luthier.emulator.ir.variant import FloatMode
from luthier.emulator.operations import operations_of

LANES = 64
PTR = ir.PointerType()
Evaluate = Callable[..., Any]


def _array_type(spec: OperandSpec) -> Any:
    if spec.type.kind in ("mask", "scc"):
        return np.dtype(np.uint8)
    return np.dtype(f"u{spec.type.bits // 8}")


@functools.cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
    )
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


def _load(b: Builder, address: Any, spec: OperandSpec, lanes: int) -> TypedValue:
    kind = spec.type
    if kind.kind in ("mask", "scc"):
        byte = b.shaped(ir.IntType(8), lanes)
        loaded = b.ir.trunc(b.ir.load(address, typ=byte, align=1), b.shaped(ir.IntType(1), lanes))
        return b.wrap(loaded, MASK if lanes else SCC)
    return b.wrap(b.ir.load(address, typ=b.shaped(kind.element.llvm, lanes), align=1), kind.element)


def _store(b: Builder, value: TypedValue, address: Any, lanes: int) -> None:
    result = value.llvm
    if value.type.kind in ("mask", "scc"):
        result = b.ir.zext(result, b.shaped(ir.IntType(8), lanes))
    b.ir.store(result, address, align=1)


@functools.cache
def _compile(
    name: str,
    major: int,
    mode: FloatMode,
    modifiers: tuple[tuple[str, int], ...],
    constants: tuple[int, ...],
    processor: str = "",
) -> tuple[DeclaredOperation, Any, int]:
    operation = operations_of(major)[name]
    assert operation.form in (Form.LANE, Form.SCALAR, Form.PACKED), "needs a wave"
    lanes = 0 if operation.form is Form.SCALAR else LANES
    module = ir.Module()
    symbol = f"{name}_{zlib.crc32(repr((major, mode, modifiers, constants, processor)).encode()):x}"
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR]), symbol)
    builder = ir.IRBuilder(function.append_basic_block())
    b = Builder(builder, lanes, mode, major)
    b.modifiers = dict(modifiers)
    b.processor = processor
    position = 0

    def address() -> Any:
        nonlocal position
        slot = builder.gep(function.args[0], [ir.Constant(ir.IntType(64), 8 * position)], source_etype=ir.IntType(8))
        position += 1
        return builder.load(slot, typ=PTR)

    values: list[Any] = []
    remaining = list(constants)
    for spec in operation.sources:
        if spec.is_immediate:
            values.append(b.wrap(ir.Constant(ir.IntType(32), remaining.pop(0) & 0xFFFFFFFF), "u32"))
        elif spec.type.count > 1:
            values.append(tuple(_load(b, address(), spec, lanes) for _ in range(spec.type.count)))
        else:
            values.append(_load(b, address(), spec, lanes))
    elements = [spec for spec in operation.results for _ in range(spec.type.count)]
    for spec, value in zip(elements, flatten(operation.function(b, *values)), strict=True):
        expected = {"mask": MASK, "scc": SCC}.get(spec.type.kind, spec.type)
        if spec.type.kind in ("mask", "scc"):
            assert value.type == expected
        else:
            assert value.type.llvm == expected.element.llvm, (name, value.type)
        _store(b, value, address(), lanes)
    builder.ret_void()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    engine = _engine()
    engine.add_module(parsed)
    engine.finalize_object()
    return operation, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address(symbol)), position


def _evaluate(
    name: str,
    *sources: Any,
    major: int = 9,
    mode: FloatMode | None = None,
    constants: Sequence[int] = (),
    processor: str = "",
    **modifiers: int,
) -> Any:
    """Results as arrays of unsigned integers, bytes for masks. Sources likewise, or floats; of a tuple one each."""
    mode = mode or FloatMode()
    operation, call, _ = _compile(name, major, mode, tuple(sorted(modifiers.items())), tuple(constants), processor)
    specs = [spec for spec in operation.sources if not spec.is_immediate for _ in range(spec.type.count)]
    given = [np.ascontiguousarray(source) for source in sources]
    assert len(given) == len(specs), f"{name} takes {len(specs)} arrays"
    count = max((array.size for array in given), default=1)
    step = 1 if operation.form is Form.SCALAR else LANES
    padded = -(-count // step) * step
    inputs = []
    for array, spec in zip(given, specs, strict=True):
        kind = _array_type(spec)
        bits = array.view(kind) if array.itemsize == kind.itemsize else array.astype(kind)
        inputs.append(np.resize(np.broadcast_to(bits, count) if bits.size == 1 else bits, padded).astype(kind))
    outputs = [np.zeros(padded, _array_type(spec)) for spec in operation.results for _ in range(spec.type.count)]
    arrays = inputs + outputs
    pointers = (ctypes.c_void_p * max(1, len(arrays)))()
    for start in range(0, padded, step):
        for index, array in enumerate(arrays):
            pointers[index] = array.ctypes.data + start * array.itemsize
        call(ctypes.addressof(pointers))
    results = tuple(output[:count] for output in outputs)
    return results[0] if len(results) == 1 else results


@pytest.fixture(scope="session")
def evaluate() -> Evaluate:
    return _evaluate


def _edges(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    full = 2 * top - 1
    small = [0, 1, 2, 3, 5, 7, 15, 31, 32, 33, 63, 64, 127, 128, 255]
    values = [*small, top - 1, top, top + 1, full, full - 1, full // 3, full // 5]
    return [value & full for value in values]


def _float_edges(bits: int) -> list[int]:
    fraction = {16: 10, 32: 23, 64: 52}[bits]
    infinity = ((1 << (bits - 1)) - 1) ^ ((1 << fraction) - 1)
    unit = (infinity >> 1) & ~((1 << fraction) - 1)
    if bits == 16:
        unit = 0x3C00
    positive = [
        0,
        1,
        2,
        (1 << fraction) - 1,
        1 << fraction,
        (1 << fraction) + 1,
        unit - 1,
        unit,
        unit + 1,
        unit | (1 << (fraction - 1)),
        unit + (1 << fraction),
        unit - (1 << fraction),
        infinity - 1,
        infinity - (1 << fraction),
        infinity,
        infinity | 1,
        infinity | (1 << (fraction - 1)) | 5,
    ]
    return positive + [value | 1 << (bits - 1) for value in positive]


def _cases(kinds: str, *, seed: int = 1, random: int = 1024) -> list[np.ndarray]:
    """One array of bit patterns a kind: all combinations of edge values of the first two, then seeded random ones."""
    names = kinds.split()
    generator = np.random.default_rng(seed + zlib.crc32(kinds.encode()))
    columns = []
    edges = [np.array(_float_edges(int(k[1:])) if k[0] == "f" else _edges(int(k[1:])), dtype=np.uint64) for k in names]
    if len(names) == 1:
        grids = [edges[0]]
    else:
        first, second = np.meshgrid(edges[0], edges[1])
        grids = [first.ravel(), second.ravel()]
        grids += [generator.choice(edge, grids[0].size) for edge in edges[2:]]
    for name, grid in zip(names, grids, strict=True):
        bits = int(name[1:])
        wild = generator.integers(0, 2**64, random, dtype=np.uint64)
        if name[0] == "f":
            # Half of the random numbers near 1, so that sums and quotients are ordinary ones.
            fraction = {16: 10, 32: 23, 64: 52}[bits]
            bias = {16: 15, 32: 127, 64: 1023}[bits]
            near = generator.integers(bias - 6, bias + 6, random, dtype=np.uint64) << np.uint64(fraction)
            sign = generator.integers(0, 2, random, dtype=np.uint64) << np.uint64(bits - 1)
            ordinary = near | sign | (wild & np.uint64((1 << fraction) - 1))
            wild = np.where(generator.integers(0, 2, random) == 0, wild, ordinary)
        mask = np.uint64((1 << bits) - 1)
        columns.append((np.concatenate([grid, wild]) & mask).astype(f"u{bits // 8}"))
    return columns


@pytest.fixture(scope="session")
def cases() -> Callable[..., list[np.ndarray]]:
    return _cases
