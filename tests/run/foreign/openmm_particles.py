"""Move charged particles by OpenMM on a GPU, and compare their energy with that of its reference on the processor."""

import openmm
from openmm.unit import kilojoule_per_mole


def energy(platform: str) -> float:
    """Return the energy of 64 particles after three steps, in kJ/mol."""
    system, force, positions = openmm.System(), openmm.NonbondedForce(), []
    for index in range(64):
        system.addParticle(39.9)
        force.addParticle(0.1 if index % 2 else -0.1, 0.34, 1.0)
        positions.append(openmm.Vec3(index % 4, index // 4 % 4, index // 16) * 0.4)
    system.addForce(force)
    integrator = openmm.VerletIntegrator(0.001)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName(platform))
    context.setPositions(positions)
    integrator.step(3)
    return context.getState(getEnergy=True).getPotentialEnergy().value_in_unit(kilojoule_per_mole)


expected, actual = energy("Reference"), energy("HIP")
assert abs(actual - expected) < 1e-5 * abs(expected), (actual, expected)
print("equal to the processor's")
