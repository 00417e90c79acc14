"""Declarations that Python and native code share: messages, structures in shared memory, facts of virtual devices.

The build generates the C++ from it (`luthier.emulator.agreement` has the whole text and its digest). This package
imports only Python's standard library, since builds have nothing else.

| module | declares |
| --- | --- |
| `structures` | tools for declarations: `WireStructure`, `FieldLayout`, `Message`, `request` |
| `device_requests`, `tool_requests` | requests of the virtual device and of the tool library to the service of a run |
| `messages` | contents of messages of both: counts, findings |
| `memory` | structures in memory that processes share with the service |
| `channels` | channels and their rings, which device code writes |
| `topology` | facts of a device that both driver shims report |
| `spelling` | declarations in C++ |
"""
