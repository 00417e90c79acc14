"""Write a small network as ONNX with random weights, or compare ONNX Runtime's results on a GPU with the processor's.

python3 onnx_networks.py convolutional FILE     # or: transformer
python3 onnx_networks.py compare FILE PROVIDER  # of ONNX Runtime, e.g. ROCMExecutionProvider
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(7)
SHAPES = {"convolutional": ([1, 3, 16, 16], [1, 10]), "transformer": ([1, 8, 32], [1, 8, 32])}
"""Of each network's input and output."""


class Graph:
    """Nodes and weights of a network."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node, and return its output, or the list of its outputs."""
        from onnx import helper

        names = [f"{operator}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=f"{operator}_{len(self.nodes)}", **attributes))
        return names if outputs > 1 else names[0]

    def constant(self, value: Any) -> str:
        """Add an array, and return its name."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        """Add random numbers of a deviation that keeps results in the range of inputs, and return their name."""
        deviation = float(np.prod(shape[1:])) ** -0.5
        return self.constant((RANDOM.standard_normal(shape) * deviation).astype(np.float32))


def convolutional(graph: Graph, data: str) -> Any:
    """Add two convolutions with normalisation, pooling and a classifier."""
    data = graph.node("Conv", data, graph.weight(8, 3, 3, 3), graph.weight(8), pads=[1, 1, 1, 1])
    data = graph.node("MaxPool", graph.node("Relu", data), kernel_shape=[2, 2], strides=[2, 2])
    data = graph.node("Conv", data, graph.weight(16, 8, 3, 3), graph.weight(16), pads=[1, 1, 1, 1])
    positive = graph.constant(np.abs(RANDOM.standard_normal(16)).astype(np.float32) + 1)
    data = graph.node("BatchNormalization", data, positive, graph.weight(16), graph.weight(16), positive)
    data = graph.node("Flatten", graph.node("GlobalAveragePool", graph.node("Relu", data)))
    return graph.node("Softmax", graph.node("Gemm", data, graph.weight(16, 10), graph.weight(10)))


def transformer(graph: Graph, data: str) -> Any:
    """Add a layer with attention of two heads, and one with two products, each around a sum with its input."""

    def normalised(data: str) -> Any:
        return graph.node("LayerNormalization", data, graph.weight(32), graph.weight(32))

    mixed = graph.node("MatMul", normalised(data), graph.weight(32, 96))
    heads = []
    for part in graph.node("Split", mixed, graph.constant(np.array([32, 32, 32])), outputs=3, axis=2):
        split = graph.node("Reshape", part, graph.constant(np.array([1, 8, 2, 16])))
        heads.append(graph.node("Transpose", split, perm=[0, 2, 1, 3]))
    query, key, value = heads
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    attention = graph.node("Softmax", graph.node("Mul", scores, graph.constant(np.float32(0.25))), axis=-1)
    joined = graph.node("Transpose", graph.node("MatMul", attention, value), perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", joined, graph.constant(np.array([1, 8, 32])))
    data = graph.node("Add", data, graph.node("MatMul", joined, graph.weight(32, 32)))
    wide = graph.node("MatMul", normalised(data), graph.weight(32, 64))
    half = graph.node("Mul", wide, graph.constant(np.float32(0.5)))
    error = graph.node("Erf", graph.node("Mul", wide, graph.constant(np.float32(0.5**0.5))))
    wide = graph.node("Mul", half, graph.node("Add", error, graph.constant(np.float32(1))))
    return graph.node("Add", data, graph.node("MatMul", wide, graph.weight(64, 32)))


NETWORKS: dict[str, Callable[[Graph, str], Any]] = {"convolutional": convolutional, "transformer": transformer}


def write(name: str, path: str) -> None:
    """Write a network to a file."""
    import onnx
    from onnx import TensorProto, helper

    graph = Graph()
    last = NETWORKS[name](graph, "data")
    names = "data", last
    given, result = map(helper.make_tensor_value_info, names, [TensorProto.FLOAT] * 2, SHAPES[name])
    whole = helper.make_graph(graph.nodes, name, [given], [result], graph.weights)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def compare(path: str, provider: str) -> None:
    """Exit with an error if a provider's results differ from the processor's, or if it was not used."""
    import onnxruntime

    sessions = [onnxruntime.InferenceSession(path, providers=[one]) for one in ("CPUExecutionProvider", provider)]
    if sessions[1].get_providers()[0] != provider:
        sys.exit(f"ONNX Runtime used {sessions[1].get_providers()}")
    given = sessions[0].get_inputs()[0]
    data = {given.name: RANDOM.standard_normal(given.shape).astype(np.float32)}
    expected, result = (session.run(None, data)[0] for session in sessions)
    if not np.allclose(expected, result, rtol=1e-3, atol=1e-4) or not np.std(expected):
        sys.exit(f"results differ by up to {np.abs(expected - result).max()}")
    print("equal to the processor's")


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(*sys.argv[2:])
    else:
        write(*sys.argv[1:])
