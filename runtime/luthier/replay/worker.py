"""A process that reads a job from standard input, runs it, and prints the answer.

Its argument is the id of the parent process; it ends with that process.
"""

from __future__ import annotations

import sys

from luthier.replay.jobs import answered, job_of
from luthier.support.processes import end_with
from luthier.terminal import say_text

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    say_text(answered(job_of(sys.stdin.read())))
