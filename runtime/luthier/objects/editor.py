"""`ObjectEditor`: a new stand-alone code object from an old one.

Everything in the original stays at its virtual address, so no code or data needs to be found and corrected. Additions
go to new segments above; tables that outgrow their place are written again there, and the old copies are left unused.

ROCr's loader (loader/executable.cpp, libamdhsacode) requires of the result: PT_LOAD segments in ascending order, which
it copies to one allocation at their relative addresses; one .symtab, whose global symbols it loads; correct section
indices of symbols, since it reads descriptors by them; dynamic relocations in SHT_RELA sections with sh_info 0; and the
section headers last in the file, since it computes the file's size from them.
"""

from __future__ import annotations

import struct

from luthier.errors import LuthierError
from luthier.objects import elf as E
from luthier.objects.code_object import CodeObject
from luthier.objects.image import PAGE, ElfImage, round_up
from luthier.objects.metadata import NOTE_OWNER, NT_AMDGPU_METADATA, Metadata, encode_metadata
from luthier.objects.symbol_tables import Strings, SymbolTable

_SEGMENT_FLAGS = {"r": E.PF_R, "rw": E.PF_R | E.PF_W, "rx": E.PF_R | E.PF_X}
_SECTION_FLAGS = {"r": E.SHF_ALLOC, "rw": E.SHF_ALLOC | E.SHF_WRITE, "rx": E.SHF_ALLOC | E.SHF_EXECINSTR}
_TYPES = {"notype": 0, "object": 1, "func": 2}
_BINDINGS = {"local": 0, "global": 1, "weak": 2}
_VISIBILITIES = {"default": 0, "hidden": 2, "protected": 3}
_VERSION_SECTIONS = range(0x6FFFFFFD, 0x70000000)
_LARGEST = 1 << 31
"""Maximum bytes of a reserved segment: the reach of 32-bit PC-relative addressing."""


class ObjectEditor:
    """Collects changes to a copy of `object`; `finish` writes it. The original is not touched.

    Raises:
        ObjectError: the object has no section headers or has symbol versions; AMD's linker creates neither.
    """

    def __init__(self, object: CodeObject) -> None:
        self._object = object
        self._image = image = ElfImage(object.elf)
        if any(section.type in _VERSION_SECTIONS for section in image.sections):
            image.fail("an object with symbol versions cannot be edited")
        self._strings: dict[int, Strings] = {}
        self._dynsym_index = image.find(E.SHT_DYNSYM, allocated=True)
        self._dynsym = None if self._dynsym_index is None else self._table(self._dynsym_index)
        symtab_index = image.find(E.SHT_SYMTAB, allocated=False)
        self._symtab_index = self._add_symtab() if symtab_index is None else symtab_index
        self._symtab = self._table(self._symtab_index)
        self._rela_index = image.find(E.SHT_RELA, allocated=True)
        rela = b"" if self._rela_index is None else image.contents(self._rela_index)
        self._relocations = E.RELOCATION.unpack_all(rela)
        self._relocations_changed = False
        self._metadata: bytes | None = None

    def reserve(self, size: int, *, flags: str, align: int = PAGE, name: str) -> int:
        """Add a segment of `size` zero bytes above all others, covered by a section `name`.

        Args:
            size: bytes, at least 1.
            flags: ``r``, ``rw`` or ``rx``.
            align: alignment of the segment's address, a power of two; at least a page.
            name: section name, e.g. ``.luthier.text``.

        Returns:
            Its virtual address; fill it with `write`.
        """
        if not 1 <= size < _LARGEST or flags not in _SEGMENT_FLAGS or align < 1 or align & align - 1:
            self._image.fail(f"cannot reserve {size} bytes with flags {flags!r} and alignment {align}")
        segment = self._image.add_segment(size, _SEGMENT_FLAGS[flags], max(align, PAGE))
        header = E.SectionHeader(0, E.SHT_PROGBITS, _SECTION_FLAGS[flags], segment.address, 0, size, 0, 0, 256, 0)
        self._image.add_section(name, header)
        return segment.address

    def write(self, address: int, data: bytes) -> None:
        """Replace bytes at a virtual address, in a reserved segment or where the original file has bytes.

        Raises:
            ObjectError: no segment of the file contains all of them.
        """
        self._image.write(address, data)

    def define_symbol(
        self,
        name: str,
        address: int,
        size: int,
        type: str = "object",
        binding: str = "global",
        visibility: str = "protected",
    ) -> None:
        """Add a symbol to .symtab and, unless it is local or hidden, to .dynsym; it defines an import of that name.

        Args:
            address: in the original object or a reserved segment.
            size: bytes.
            type: ``object`` (variables, descriptors), ``func`` or ``notype``.
            binding: ``global``, ``weak`` or ``local``.
            visibility: ``default``, ``hidden`` or ``protected``.

        Raises:
            ObjectError: a global symbol of that name is already defined, or no section contains the address.
        """
        try:
            info = _BINDINGS[binding] << 4 | _TYPES[type]
            other = _VISIBILITIES[visibility]
        except KeyError as problem:
            self._image.fail(f"symbol {name!r} has unknown binding, type or visibility {problem}")
        section = self._image.section_at(address)
        for table in self._tables(dynamic=binding != "local" and visibility != "hidden"):
            indices = [] if binding == "local" else table.find_global(name)
            if indices and table.records[indices[0]].section != E.SHN_UNDEF:
                self._image.fail(f"symbol {name!r} is already defined", table.records[indices[0]].value)
            if indices:
                table.update(indices[0], info=info, other=other, section=section, value=address, size=size)
            else:
                table.add(name, info, other, section, address, size)

    def import_symbol(self, name: str) -> None:
        """Add an undefined symbol, which the loader resolves to a variable defined for the executable.

        Does nothing if there is a global symbol of that name.
        """
        for table in self._tables(dynamic=True):
            if not table.find_global(name):
                table.add(name, _BINDINGS["global"] << 4, 0, E.SHN_UNDEF, 0, 0)

    def move_symbol(self, name: str, address: int, size: int | None = None) -> None:
        """Change the address of an existing symbol, in both tables.

        Args:
            size: bytes; None keeps the old size.

        Raises:
            ObjectError: no such symbol is defined, several local ones are, or no section contains the address.
        """
        section = self._image.section_at(address)
        moved = False
        for table in self._tables(dynamic=True):
            indices = table.find_global(name) or table.find_local(name)
            if len(indices) > 1:
                self._image.fail(f"{len(indices)} symbols are named {name!r}")
            for index in indices:
                old = table.records[index]
                if old.section == E.SHN_UNDEF:
                    self._image.fail(f"symbol {name!r} is undefined and cannot be moved")
                table.update(index, value=address, size=old.size if size is None else size, section=section)
                moved = True
        if not moved:
            self._image.fail(f"no symbol {name!r} to move")

    def add_relocation(self, offset: int, type: int, addend: int, symbol: str = "") -> None:
        """Add a dynamic relocation.

        Args:
            offset: virtual address of the bytes the loader writes.
            type: R_AMDGPU_RELATIVE64 (13; `addend` is the virtual address it points to), R_AMDGPU_ABS64 (3), …
            addend: added to the symbol's address, or for RELATIVE64 to the load address.
            symbol: name of a symbol in .dynsym; "" for none.

        Raises:
            ObjectError: there is no such dynamic symbol, or no memory at `offset`.
        """
        self._relocations.append(self._relocation(offset, type, addend, symbol))
        self._relocations_changed = True

    def add_section(self, name: str, data: bytes) -> None:
        """Add a section that is not loaded, or replace the contents of an existing one."""
        image = self._image
        index = next((i for i, known in enumerate(image.section_names) if known == name), None)
        if index is None:
            index = image.add_section(name, E.SectionHeader(0, E.SHT_PROGBITS, 0, 0, 0, 0, 0, 0, 1, 0))
        elif image.sections[index].flags & E.SHF_ALLOC:
            image.fail(f"section {name} is loaded, so it cannot be replaced")
        image.replace(index, data)

    def set_metadata(self, metadata: Metadata) -> None:
        """Replace the kernel metadata, e.g. with a changed deep copy of `CodeObject.metadata`."""
        self._metadata = encode_metadata(metadata)

    def finish(self) -> bytes:
        """Return the edited object; the editor must not be used afterwards.

        Raises:
            ObjectError: the result cannot be read: a descriptor was overwritten with something else, or the headers of
                the original contradict each other.
        """
        image = self._image
        if self._metadata is not None:
            self._replace_note(self._metadata)
        self._replace_dynsym()
        self._replace_relocations()
        dynamic_index = image.find(E.SHT_DYNAMIC, allocated=True)
        dynamic_grows = dynamic_index is not None and self._replace_dynamic(dynamic_index)
        image.place_loaded(E.PF_R | E.PF_W if dynamic_grows else E.PF_R)
        if dynamic_index is not None:
            self._update_dynamic(dynamic_index)
        self._replace_symtab(dynamic_index)
        data = image.finish()
        try:
            CodeObject(data, image.name)
        except LuthierError as problem:
            problem.message = f"the edited object cannot be read: {problem.message}"
            raise
        return data

    def _table(self, index: int) -> SymbolTable:
        """Return the symbols in section `index`; tables that share a string table share its object."""
        strings_index = self._image.sections[index].link
        if strings_index not in self._strings:
            self._strings[strings_index] = Strings(self._image.contents(strings_index))
        return SymbolTable(self._image.contents(index), self._strings[strings_index])

    def _tables(self, *, dynamic: bool) -> list[SymbolTable]:
        return [self._symtab, self._dynsym] if dynamic and self._dynsym else [self._symtab]

    def _add_symtab(self) -> int:
        """Add .symtab, with the dynamic symbols, to an object that was stripped of it."""
        image = self._image
        strings = b"\0" if self._dynsym is None else bytes(self._dynsym.strings.data)
        symbols = b"" if self._dynsym_index is None else image.contents(self._dynsym_index)
        info = 1 if self._dynsym_index is None else image.sections[self._dynsym_index].info
        link = image.add_section(".strtab", E.SectionHeader(0, E.SHT_STRTAB, 0, 0, 0, 0, 0, 0, 1, 0))
        header = E.SectionHeader(0, E.SHT_SYMTAB, 0, 0, 0, 0, link, info, 8, E.SYMBOL.size)
        index = image.add_section(".symtab", header)
        image.replace(link, strings)
        image.replace(index, symbols or bytes(E.SYMBOL.size))
        return index

    def _relocation(self, offset: int, type: int, addend: int, symbol: str) -> E.RelocationRecord:
        if not self._image.in_memory(offset, 8):
            self._image.fail("no segment has memory for a relocation at this address", offset)
        number = 0
        if symbol:
            indices = self._dynsym.find_global(symbol) if self._dynsym else []
            if not indices:
                self._image.fail(f"no dynamic symbol {symbol!r} to relocate against", offset)
            number = indices[0]
        return E.RelocationRecord(offset, number << 32 | type, addend)

    def _replace_note(self, description: bytes) -> None:
        """Write the metadata note: in its section if that contains nothing else, otherwise in a new one."""
        image = self._image
        owner = NOTE_OWNER.encode() + b"\0"
        note = struct.pack("<III", len(owner), len(description), NT_AMDGPU_METADATA) + owner.ljust(8, b"\0")
        note += description + bytes(-len(description) % 4)
        notes = self._object.elf.notes()
        old = [one for one in notes if one.owner == NOTE_OWNER and one.type == NT_AMDGPU_METADATA]
        if len(old) == 1:
            start, size = old[0].start, 20 + round_up(len(old[0].description), 4)
            described = {(h.offset, h.filesz, h.vaddr) for h in image.headers if h.type == E.PT_NOTE and h.align != 8}
            for index, section in enumerate(image.sections):
                place = section.offset, section.size, section.address
                if (
                    section.type == E.SHT_NOTE
                    and image.is_loaded(index)
                    and place[:2] == (start, size)
                    and place in described
                ):
                    image.replace(index, note)
                    return
        for previous in old:
            image.clear(previous.start + 8, 4)  # no longer a metadata note, but still a note
        header = E.SectionHeader(0, E.SHT_NOTE, E.SHF_ALLOC, 0, 0, 0, 0, 0, 4, 0)
        image.replace(image.add_section(".note", header), note)
        image.headers.append(E.SegmentHeader(E.PT_NOTE, E.PF_R, 0, 0, 0, 0, 0, 4))  # placed with the section

    def _replace_dynsym(self) -> None:
        image, table, index = self._image, self._dynsym, self._dynsym_index
        if table is None or index is None or not table.changed:
            return
        gnu_hash = image.find(E.SHT_GNU_HASH, allocated=True)
        table.sort(hashed=gnu_hash is not None)
        if table.order != list(range(len(table.order))):
            self._relocations_changed = True
            for i, record in enumerate(self._relocations):
                self._relocations[i] = record._replace(info=table.order[record.symbol] << 32 | record.type)
        self._replace_table(index, table)
        sysv_hash = image.find(E.SHT_HASH, allocated=True)
        if gnu_hash is not None:
            image.replace(gnu_hash, table.gnu_hash_table())
        if sysv_hash is not None:
            image.replace(sysv_hash, table.sysv_hash_table())

    def _replace_relocations(self) -> None:
        if not self._relocations_changed:
            return
        self._relocations.sort(key=lambda record: record.type != E.R_AMDGPU_RELATIVE64)  # DT_RELACOUNT needs them first
        if self._rela_index is None:
            if self._dynsym_index is None:
                self._image.fail("relocations cannot be added to an object without dynamic symbols")
            link = self._dynsym_index
            header = E.SectionHeader(0, E.SHT_RELA, E.SHF_ALLOC, 0, 0, 0, link, 0, 8, E.RELOCATION.size)
            self._rela_index = self._image.add_section(".rela.dyn", header)
        self._image.replace(self._rela_index, E.RELOCATION.pack_all(self._relocations))

    def _replace_dynamic(self, index: int) -> bool:
        """Add the entries of a new relocation table to .dynamic; return whether it had to grow."""
        entries = E.DYNAMIC.unpack_all(self._image.contents(index))
        end = next((i for i, entry in enumerate(entries) if entry.tag == E.DT_NULL), len(entries))
        if self._rela_index is None or any(entry.tag == E.DT_RELA for entry in entries[:end]):
            return False
        added = [E.DynamicRecord(tag, 0) for tag in (E.DT_RELA, E.DT_RELASZ, E.DT_RELAENT, E.DT_RELACOUNT)]
        self._image.replace(index, E.DYNAMIC.pack_all([*entries[:end], *added, E.DynamicRecord(E.DT_NULL, 0)]))
        return True

    def _update_dynamic(self, index: int) -> None:
        """Update addresses and sizes of the tables in .dynamic."""
        image = self._image
        values = {E.DT_RELAENT: E.RELOCATION.size, E.DT_SYMENT: E.SYMBOL.size}
        values[E.DT_RELACOUNT] = sum(record.type == E.R_AMDGPU_RELATIVE64 for record in self._relocations)
        strings_index = None if self._dynsym_index is None else image.sections[self._dynsym_index].link
        for section_index, address_tag, size_tag in (
            (self._dynsym_index, E.DT_SYMTAB, None),
            (strings_index, E.DT_STRTAB, E.DT_STRSZ),
            (image.find(E.SHT_HASH, allocated=True), E.DT_HASH, None),
            (image.find(E.SHT_GNU_HASH, allocated=True), E.DT_GNU_HASH, None),
            (self._rela_index, E.DT_RELA, E.DT_RELASZ),
        ):
            if section_index is not None:
                values[address_tag] = image.sections[section_index].address
                if size_tag is not None:
                    values[size_tag] = image.sections[section_index].size
        entries = E.DYNAMIC.unpack_all(image.contents(index))
        entries = [entry._replace(value=values.get(entry.tag, entry.value)) for entry in entries]
        image.write(image.sections[index].address, E.DYNAMIC.pack_all(entries))

    def _replace_symtab(self, dynamic_index: int | None) -> None:
        image, table, index = self._image, self._symtab, self._symtab_index
        if dynamic_index is not None:
            for number in table.find_local("_DYNAMIC"):
                if table.records[number].value != image.sections[dynamic_index].address:
                    table.update(number, value=image.sections[dynamic_index].address)
        if not table.changed:
            return
        table.sort(hashed=False)
        self._replace_table(index, table)
        if table.order == list(range(len(table.order))):
            return
        for other, section in enumerate(image.sections):  # of a link with --emit-relocs
            if section.type == E.SHT_RELA and section.link == index:
                records = E.RELOCATION.unpack_all(image.contents(other))
                moved = [r._replace(info=table.order[r.symbol] << 32 | r.type) for r in records]
                image.replace(other, E.RELOCATION.pack_all(moved))

    def _replace_table(self, index: int, table: SymbolTable) -> None:
        image = self._image
        image.replace(index, E.SYMBOL.pack_all(table.records))
        image.sections[index] = image.sections[index]._replace(info=table.first_global)
        strings_index = image.sections[index].link
        if table.strings.grown:
            image.replace(strings_index, bytes(table.strings.data))
