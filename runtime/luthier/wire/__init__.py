"""Declarations that Python and native code share: messages, structures in shared memory, facts of virtual devices.

The build makes the C++ of it (`luthier.emulator.agreement` has all of the text, and its digest). Nothing here imports
what is not in Python's standard library, as a build has nothing else.

| module | declares |
| --- | --- |
| `structures` | the ways to declare: `Structure`, `Layout`, `Message`, `request` |
| `device_requests`, `tool_requests` | requests of the virtual device and of the tool library to the service of a run |
| `messages` | what is in messages of both: counts, findings |
| `memory` | structures in memory that processes share with the service |
| `channels` | channels and their rings, which device code writes to |
| `topology` | what both stand-ins for a driver say of a device |
| `spelling` | declarations in C++ |
"""
