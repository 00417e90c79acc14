"""`luthier selftest`: test Luthier from end to end on a user's machine, with the software installed there.

No compiler is needed: the kernel is assembled when the test runs (`kernel`). `steps` runs the steps of `devices` and
`programs` and records their outcomes.
"""
