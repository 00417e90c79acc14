"""The tree of AMD's generations: one folder a generation, with its parent and what it changes.

A folder has its `Generation` (`luthier.arch.generation`), which names its parent, and `PROCESSORS`
(`luthier.arch.targets.Target`). Beside facts that take the place of the parent's, it has what begins with it: rows of
hazards (`luthier.arch.hazards`), which hold for its descendants until one of them ends them. What is on another branch
never applies.

```text
AMDGCN ─┬─ GFX9 ─── GFX908 ─── GFX90A ─── GFX940 ─── GFX950
        └─ GFX10 ── GFX10_3 ── GFX11 ─┬─ GFX11_5
                                      └─ GFX12 ─── GFX1250
```

Other packages add generations by the entry-point group ``luthier.arch`` (`luthier.arch.targets`).

It is data alone: instructions, kinds of them, and operations are named by strings, which those who use them check.
"""
