"""Simulate quantum circuits by PennyLane on a GPU, and compare with its simulator on the processor."""

import numpy as np
import pennylane as qml

QUBITS = 5


def circuit(angles: np.ndarray) -> list[object]:
    """Rotate, entangle, and measure what depends on all qubits."""
    for layer in angles:
        for qubit, angle in enumerate(layer):
            qml.RX(angle, wires=qubit)
            qml.RZ(angle / 2, wires=qubit)
        for qubit in range(QUBITS):
            qml.CNOT(wires=[qubit, (qubit + 1) % QUBITS])
    qml.Toffoli(wires=[0, 1, 2])
    return [qml.expval(qml.PauliZ(0) @ qml.PauliX(3)), qml.probs(wires=[1, 4])]


angles = np.random.default_rng(5).uniform(0, np.pi, (3, QUBITS))
results = [
    np.hstack([np.ravel(value) for value in qml.QNode(circuit, qml.device(name, wires=QUBITS))(angles)])
    for name in ("default.qubit", "lightning.amdgpu")
]
assert np.std(results[0]) > 0
np.testing.assert_allclose(results[1], results[0], atol=1e-10)
print("equal to the processor's")
