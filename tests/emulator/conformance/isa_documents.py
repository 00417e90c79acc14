"""The pseudo-code of every instruction: AMD's documents as the tinygrad package has them, and replacements where they
are silent or wrong."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path

from isa_deviations import ALIASES, REPLACED

_SUFFIX = re.compile(r"(_e32|_e64|_dpp8|_dpp|_sdwa|_nosdst|_opsel)+$")
_ENCODING = re.compile(r"_e(32|64)$")


def base_name(mnemonic: str) -> str:
    """A mnemonic without its encoding."""
    return _SUFFIX.sub("", mnemonic)


@functools.cache
def document(name: str) -> dict[str, str]:
    """Pseudo-code by mnemonic: ``cdna`` (CDNA3 and CDNA4), ``rdna3`` or ``rdna4``."""
    spec = importlib.util.find_spec("tinygrad")
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], "runtime", "autogen", "amd", name, "str_pcode.py")
    # Read as data: a dictionary of opcode to text. Nothing of the package is imported.
    table = next(node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Dict))
    texts: dict[str, str] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Attribute)
        texts.setdefault(_ENCODING.sub("", key.attr.lower()), ast.literal_eval(value))
    return texts


def document_of(major: int) -> str:
    """The document of a generation; GFX10.3 has none, and is mostly what GFX11 is."""
    return {9: "cdna", 10: "rdna3", 11: "rdna3", 12: "rdna4"}[major]


@functools.cache
def text_of(name: str, major: int) -> str | None:
    """The pseudo-code of an instruction (its base mnemonic); None where there is none."""
    for majors, names, text, _ in REPLACED:
        if major in majors and re.fullmatch(names, name):
            return text
    names = [name, *(re.sub(pattern, to, name) for pattern, to in ALIASES if re.fullmatch(pattern, name))]
    main = document_of(major)
    if major == 10 and re.fullmatch(r"v_(pk_)?(min|max|med)3?_f(16|32|64)", name):
        main = "cdna"  # NaN are chosen as on GFX9 (RDNA2's document)
    for candidate in names:
        if candidate in document(main):
            return document(main)[candidate]
    if name.startswith("v_fma_mix"):
        return document("rdna3").get(name)
    if major in (10, 12):  # GFX1250 has what CDNA had and RDNA has not
        for candidate in names:
            if candidate in document("cdna"):
                return document("cdna")[candidate]
    return None
