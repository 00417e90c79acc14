"""Process that does one job, which it reads from standard input, and prints the answer."""

from __future__ import annotations

import sys

from luthier.replay.jobs import answered, job_of
from luthier.terminal import say_text

if __name__ == "__main__":
    say_text(answered(job_of(sys.stdin.read())))
