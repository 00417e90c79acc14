"""Coverage of device code as an LCOV tracefile."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from luthier.report.formats.declare import ReportFormat

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write lines and functions by file, and print on standard error what is missing.

    Functions are named by their symbols, which ``genhtml --demangle-cpp`` shows as in the source. Branches are left
    out: their counts are not known.
    """
    from luthier.report.coverage import device_coverage

    coverage = device_coverage(folder)
    for file, lines in coverage.files.items():
        functions = [one for one in coverage.functions if one.start.file == file]
        records = ["TN:luthier", f"SF:{file}"]
        records += [f"FN:{one.start.line},{one.name}" for one in functions]
        records += [f"FNDA:{one.count},{one.name}" for one in functions]
        records += [f"FNF:{len(functions)}", f"FNH:{sum(one.count > 0 for one in functions)}"]
        records += [f"DA:{line},{count}" for line, count in lines.items()]
        records += [f"LF:{len(lines)}", f"LH:{sum(count > 0 for count in lines.values())}", "end_of_record"]
        out.write("".join(f"{record}\n" for record in records).encode())
    coverage.say()


FORMAT = ReportFormat(help="coverage of device code by source line, for lcov, genhtml and code hosts", write=write)
