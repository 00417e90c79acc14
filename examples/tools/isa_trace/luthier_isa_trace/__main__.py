"""``python -m luthier_isa_trace RUN``: check a trace, and write it for simulators."""

from __future__ import annotations

import sys
from pathlib import Path

from luthier.cli.main import Parser
from luthier.errors import LuthierError
from luthier.terminal import say, say_text

from luthier_isa_trace.export import write_accel_sim, write_ramulator
from luthier_isa_trace.reading import InstructionTrace
from luthier_isa_trace.thread_trace import write_thread_traces


def main() -> int:
    """Return 1 if the trace is damaged or incomplete, otherwise 0."""
    parser = Parser(prog="python -m luthier_isa_trace", description=__doc__)
    parser.add_argument("run", metavar="RUN", help="folder of luthier run -t isa_trace -o RUN")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--accel-sim", metavar="FOLDER", type=Path, help="write kernelslist.g and .traceg files")
    form.add_argument("--ramulator", metavar="FILE", type=Path, help="write a load-store trace of Ramulator 2")
    form.add_argument("--thread-trace", metavar="FOLDER", type=Path, help="write a thread trace (SQTT) for each launch")
    options = parser.parse_args(sys.argv[1:])
    try:
        trace = InstructionTrace(options.run)
        if options.accel_sim:
            say_text(f"{options.accel_sim}: launches: {write_accel_sim(trace, options.accel_sim)}")
        elif options.thread_trace:
            say_text(f"{options.thread_trace}: launches: {write_thread_traces(trace, options.thread_trace)}")
        elif options.ramulator:
            say_text(f"{options.ramulator}: cache lines: {write_ramulator(trace, options.ramulator)}")
            return 0
        else:
            waves = [len(wave.instructions) for wave in trace.waves()]
            say_text(f"waves: {len(waves)}; instructions: {sum(waves)}")
        for kernel, (traced, exact) in (differences := trace.differences()).items():
            say(f"{kernel}: the trace has {traced} instructions, the counters {exact}", file=sys.stderr)
    except LuthierError as problem:
        say(f"luthier_isa_trace: {problem}", file=sys.stderr)
        return 1
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
