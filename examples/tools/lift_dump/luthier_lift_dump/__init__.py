"""Writes the code of every launched kernel to a file: an annotated listing, LLVM IR, or JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from luthier import InstrumentationTask, Run, Table, Tool
from luthier.errors import LuthierError, ToolError
from luthier.lifting import LiftedRepresentation
from luthier.lifting.annotations import Annotations
from luthier.lifting.listing import as_data, as_text
from luthier.lifting.llvm_view import as_llvm

FORMS = {"listing": "s", "llvm": "ll", "json": "json"}
"""File extensions by name."""


class LiftDump(Tool):
    """Inserts nothing: the original kernels run."""

    @dataclass(frozen=True)
    class Options:
        """Options: the format and the folder."""

        form: str = "listing"
        """listing: with source lines and live registers; llvm: IR for analyses; json; several joined by +."""
        to: str = ""
        """A folder; default: `lifted` in the run directory."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.forms = self.options.form.split("+")
        for form in self.forms:
            if form not in FORMS:
                raise ToolError(f"option form of lift_dump must be one of {', '.join(FORMS)}, not {form!r}")
        self.folder = Path(self.options.to) if self.options.to else None
        self.rows: list[tuple[str, str, str]] = []
        """Kernel, file, and the reason if it was not written."""

    def at_init(self, run: Run) -> None:
        """Choose the folder."""
        if self.folder is None and run.folder is not None:
            self.folder = run.folder / "lifted"
        self._chosen()

    def _chosen(self) -> Path:
        if self.folder is None:
            raise ToolError("lift_dump has nowhere to write: give -o RUN, or -t lift_dump:to=FOLDER")
        return self.folder

    def instrument(self, task: InstrumentationTask) -> None:
        """Write the kernel's files."""
        folder, lifted = self._chosen(), task.lifted
        name = lifted.kernel.name
        # Names are untrusted, and several kernels may have one name.
        digest = hashlib.blake2b(lifted.object.data + name.encode(), digest_size=4).hexdigest()
        stem = f"{re.sub(r'[^A-Za-z0-9_.]', '_', name).lstrip('.')[:100]}-{digest}"
        for form in self.forms:
            file = folder / f"{stem}.{FORMS[form]}"
            try:
                text = written(lifted, form)
                folder.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            except (LuthierError, OSError) as problem:
                self.rows.append((name, "", f"{form}: {problem}"))
            else:
                self.rows.append((name, str(file), ""))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the files, and the kernels without one."""
        dumped = {name for name, _, _ in self.rows}
        missing = dict.fromkeys(one.name for one in run.kernels if one.name not in dumped)
        rows = [*self.rows, *((name, "", "it was not lifted, or not selected") for name in missing)]
        yield Table("lifted kernels", ("kernel", "file", "reason"), rows)


def written(lifted: LiftedRepresentation, form: str) -> str:
    """Return a kernel's code as text."""
    if form == "llvm":
        return as_llvm(lifted)
    annotations = Annotations(lifted, None)
    if form == "json":
        return json.dumps(as_data(lifted, annotations), indent=1) + "\n"
    lines = as_text(lifted, instructions=True, registers=True, annotations=annotations)
    return "".join(f"{line}\n" for line in lines)
