"""Tool modules from every supported source."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from luthier.errors import LuthierError, ToolError
from luthier.isa.targets import TargetId
from luthier.module import ToolModule
from luthier.objects import load_objects
from luthier.objects.bundles import FAT_BINARY_MAGICS
from luthier.payload import ConstantArgument
from luthier.payload.cache import template_for

SOURCE = """
__managed__ uint32_t counter = 9;
__device__ float scale[3] = {1, 2, 3};
template <typename T> __device__ void bump(T by) { luthier::sAtomicAdd<uint32_t>(&counter, uint32_t(by)); }
LUTHIER_HOOK_ANNOTATE step(int16_t by, float weight) { bump<float>(by * weight * scale[1]); }
"""


@pytest.fixture(scope="module")
def module(make_module) -> ToolModule:
    return make_module(SOURCE, in_file=True)


def test_hooks_and_variables(module: ToolModule) -> None:
    assert [str(target) for target in module.targets] == ["gfx90a", "gfx942", "gfx1100"]
    assert [parameter.llvm for parameter in module.step.parameters] == ["i16", "float"]
    assert module.step.parameters[0].signed
    counter, scale = module.variables["counter"], module.variables["scale"]
    assert (counter.size, counter.managed, counter.storage.initial) == (4, True, (9).to_bytes(4, "little"))
    assert (scale.size, scale.managed) == (12, False)


def test_code_objects_of_one_module_are_one_whatever_their_order(module: ToolModule, tmp_path: Path) -> None:
    assert module.cuid
    objects = load_objects(module.name)
    for object in objects:
        alone = ToolModule.load(object.data)
        assert alone.cuid == module.cuid
        assert alone.targets == (object.target,)


def test_bitcode_from_a_file_and_from_memory(module: ToolModule, tmp_path: Path) -> None:
    object = load_objects(module.name)[1]
    bitcode = object.section_data(".llvmbc")
    assert bitcode is not None
    path = tmp_path / "tool.bc"
    path.write_bytes(bitcode)
    for loaded in (ToolModule.load(bitcode), ToolModule.load(path)):
        assert [target.target.name for target in loaded.targets] == ["gfx942"]
        arguments = (ConstantArgument("2"), ConstantArgument("0x3FF0000000000000"))
        template = template_for(loaded.step, arguments, TargetId.parse("gfx942"), 64)
        assert {fixup.symbol.partition("@")[0] for fixup in template.fixups} >= {"counter"}


def test_hooks_that_only_some_targets_have(make_module) -> None:
    """Wherever in the file these are."""
    source = """
    LUTHIER_HOOK_ANNOTATE first() {}
    #ifdef __gfx942__
    LUTHIER_HOOK_ANNOTATE second() {}
    #endif
    """
    module = make_module(source, "gfx90a", "gfx942")
    assert {name: hook.targets for name, hook in module.hooks.items()} == {"first": (), "second": ("gfx942",)}
    template_for(module.second, (), TargetId.parse("gfx942"), 64)
    with pytest.raises(LuthierError, match="hook second is only for gfx942"):
        template_for(module.second, (), TargetId.parse("gfx90a"), 64)


def test_two_modules_in_one_file_must_be_chosen(make_module, module: ToolModule, tmp_path: Path) -> None:
    other = make_module("__device__ int x; LUTHIER_HOOK_ANNOTATE other() { x = 1; }", in_file=True)
    both = tmp_path / "both.bin"
    both.write_bytes(b"".join(_padded(Path(one.name).read_bytes()) for one in (module, other)))
    assert [[*one.hooks] for one in ToolModule.load_all(both)] == [["step"], ["other"]]
    with pytest.raises(ToolError, match="there are 2 device modules"):
        ToolModule.load(both)


def test_bitcode_of_a_generic_processor_fits_its_members(make_module) -> None:
    """A tool built for a generic processor is compiled into code of each member, as the member's own is; where both are
    there, the member's own is taken."""
    source = """__managed__ uint64_t count;
    LUTHIER_HOOK_ANNOTATE step(int n) { luthier::sAtomicAdd<uint64_t>(&count, n); }"""
    generic = make_module(source, "gfx9-4-generic")
    both = make_module(source, "gfx9-4-generic", "gfx942")
    own = make_module(source, "gfx942")
    application = TargetId.parse("gfx942:sramecc+:xnack-")
    assert str(both.contents_for(application).target) == "gfx942"
    assert str(both.contents_for(TargetId.parse("gfx950")).target) == "gfx9-4-generic"
    arguments = (ConstantArgument("2"),)
    made, expected = (template_for(module.step, arguments, application, 64) for module in (generic, own))
    assert made.code.code == expected.code.code
    template_for(generic.step, arguments, TargetId.parse("gfx950"), 64)
    for other in ("gfx90a", "gfx1100"):
        with pytest.raises(ToolError, match="only for gfx9-4-generic"):
            generic.contents_for(TargetId.parse(other))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4096)


@pytest.mark.parametrize("damage", ["earlier", "later", "json", "magic", "twice"])
def test_damaged_manifests(module: ToolModule, damage: str) -> None:
    bitcode = load_objects(module.name)[0].section_data(".llvmbc")
    assert bitcode is not None
    damaged = {
        "earlier": bitcode.replace(b'{"luthier":2,', b'{"luthier":1,'),
        "later": bitcode.replace(b'{"luthier":2,', b'{"luthier":9,'),
        "json": bitcode.replace(b'"variables":', b'"variables";'),
        "magic": b"BC\xc0\xde" + bytes(100),
        "twice": bitcode + b'{"luthier":2,',
    }[damage]
    with pytest.raises(ToolError, match="rebuild it" if damage in ("earlier", "later") else None):
        ToolModule.load(damaged)


@pytest.mark.parametrize("magic", FAT_BINARY_MAGICS)
def test_bitcode_of_a_host(module: ToolModule, magic: bytes) -> None:
    """As `-flto` makes it: the device's, with its manifest, is in a bundle in it, if that is not compressed."""
    bitcode = load_objects(module.name)[0].section_data(".llvmbc")
    for inner in (bitcode, b""):
        with pytest.raises(ToolError, match="LLVM bitcode, not a code object: link it first"):
            ToolModule.load(b"BC\xc0\xde" + bytes(60) + magic + (inner or b""))


def test_every_flipped_bit_is_noticed(module: ToolModule) -> None:
    """LLVM's bitcode reader crashes on some of these; the digest keeps them from it."""
    bitcode = load_objects(module.name)[1].section_data(".llvmbc")
    assert bitcode is not None
    randomness = random.Random(1)
    for _ in range(500):
        damaged = bytearray(bitcode)
        damaged[randomness.randrange(len(damaged))] ^= 1 << randomness.randrange(8)
        with pytest.raises(ToolError):
            ToolModule.load(bytes(damaged))
