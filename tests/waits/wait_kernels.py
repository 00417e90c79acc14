"""Kernels assembled from text, for the checks of waits."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from luthier.objects import CodeObject, load_object
from luthier.processes import run

DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 96
  .amdhsa_next_free_sgpr 96
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_group_segment_fixed_size 1024
  {accum}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 8
    .group_segment_fixed_size: 1024
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: {wave}
    .sgpr_count: 96
    .vgpr_count: 96
    .max_flat_workgroup_size: 256
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
...
.end_amdgpu_metadata
"""


@functools.cache
def kernel(target: str, body: str) -> CodeObject:
    """A code object with the kernel `k`, whose code is `body` and an ``s_endpgm``; functions come behind a label."""
    nine = target.startswith("gfx9")
    accum = ".amdhsa_accum_offset 96" if target in ("gfx90a", "gfx942", "gfx950") else ""
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"\n.text\n.globl k\n.p2align 8\n.type k,@function\nk:\n'
    main, _, functions = body.partition("=functions=")
    text += "\n".join(part.strip() for part in main.split(";")) + "\n s_endpgm\n"
    text += "\n".join(part.strip() for part in functions.split(";")) + "\n.size k, .-k\n"
    text += DESCRIPTOR.format(accum=accum, wave=64 if nine else 32)
    with tempfile.TemporaryDirectory() as folder:
        source, relocatable, linked = (Path(folder) / name for name in ("k.s", "k.o", "k.co"))
        source.write_text(text)
        run(["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", "-o", relocatable, source])
        run(["ld.lld-22", "-shared", "-o", linked, relocatable])
        return load_object(linked.read_bytes())
