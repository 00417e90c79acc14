"""The tree of AMD's generations: one folder per generation, with its parent and its changes.

A folder has its `Generation` (`luthier.arch.generation`), which names its parent, and `PROCESSORS`
(`luthier.arch.targets.Target`). It has facts that replace the parent's, and the hazards (`luthier.arch.hazards`) that
begin with it, which apply to its descendants until one of them ends them. Other branches are never affected.

```text
AMDGCN ─┬─ GFX9 ─── GFX908 ─── GFX90A ─── GFX940 ─── GFX950
        └─ GFX10 ── GFX10_3 ── GFX11 ─┬─ GFX11_5
                                      └─ GFX12 ─── GFX1250
```

Other packages add generations by the entry-point group ``luthier.arch`` (`luthier.arch.targets`).

The package is only data. It names instructions, their kinds, and operations by strings, which its users check.
"""
