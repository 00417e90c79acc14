"""`luthier selftest`: what Luthier does, from end to end, on the machine of a user, with what is installed there.

No compiler is needed: the kernel is assembled when the test runs (`kernel`). `steps` runs steps and remembers what came
of them; `emulated`, `gpu` and `programs` are the steps.
"""
