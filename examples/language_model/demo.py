"""`make demo-llm`: run a language model, and count every instruction of every kernel.

No GPU is needed. The program is llama.cpp as Debian has it, unmodified, with kernels for AMD GPUs inside, above HIP and
ROCr 6.4 (`scripts/rocm-stack`). The model is small, with random weights (`make_model`).

It runs three times: on the CPU, on a virtual GPU that counts what it executes, and there under the tool `instr_count`.
All runs must generate the same text, and the tool's count must be the device's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from luthier.errors import LuthierError
from luthier.objects.names import spellings
from luthier.support.processes import run
from make_model import write_model

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "demo-llm"
PROMPT = "the kernel"


def in_stack(*command: object) -> str:
    """Run a command above ROCm 6.4 with llama.cpp, and return its output."""
    stack = [ROOT / "scripts/rocm-stack", "6.4", "--tests", "--"]
    return run([*stack, *map(str, command)], cwd=ROOT).strip()


def generate(tokens: int, device: str, *luthier: object) -> tuple[str, float]:
    """Return the text that llama.cpp generates, always with the likeliest token, and the time in seconds."""
    model = ["llama-completion", "-m", BUILD / "model.gguf", "-no-cnv", "-p", PROMPT, "-n", tokens, "--temp", 0]
    began = time.perf_counter()
    text = in_stack(*luthier, *model, "-ngl", 99, "-fit", "off", "--device", device)
    return text, time.perf_counter() - began


def under_luthier(tokens: int, target: str, *options: object) -> tuple[str, float, dict[str, Any]]:
    """Run it on a virtual GPU, and also return the results of `--json`."""
    results = BUILD / "results.json"
    luthier = [ROOT / ".venv/bin/luthier", "run", "--device", f"emu:{target}", "--json", results, *options, "--"]
    text, seconds = generate(tokens, "ROCm0", *luthier)
    return text, seconds, json.loads(results.read_text())


def main() -> int:
    """Make the model, run it three times, and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--device", default="gfx90a", metavar="TARGET", help="the virtual GPU (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=16, help="number of tokens to generate (default: %(default)s)")
    options = parser.parse_args()
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    write_model(BUILD / "model.gguf")
    print(f"a language model with random weights generates {options.tokens} tokens, above ROCm 6.4\n", flush=True)

    text, seconds = generate(options.tokens, "none")
    print(f"on the CPU, {seconds:.1f} s:\n    {text}\n", flush=True)
    texts = [text]
    text, seconds, plain = under_luthier(options.tokens, options.device, "--executed")
    program = [row for row in plain["executed"] if row["digest"]]  # ROCr's own code to fill memory is in no code object
    executed = sum(row["wave_instructions"] for row in program)
    print(f"on a virtual {options.device}, {seconds:.1f} s:\n    {text}\n    {executed:,} instructions\n", flush=True)
    texts.append(text)
    tool = ("-t", "instr_count:per_wave=true", "--runtime-kernels", "-o", BUILD / "run")
    text, seconds, counted = under_luthier(options.tokens, options.device, *tool)
    counter = sum(row["value"] for row in counted["variables"] if row["variable"] == "counter")
    print(f"there under instr_count, {seconds:.1f} s:\n    {text}\n    {counter:,} instructions\n", flush=True)
    texts.append(text)

    for row in sorted(program, key=lambda row: -row["wave_instructions"])[:8]:
        name = spellings(row["kernel"])[-1] if row["kernel"] else "functions that kernels call"
        print(f"{row['wave_instructions']:>15,}  {name[:100]}")
    page = os.path.relpath(BUILD / "run.html")
    print(f"\nthe page: .venv/bin/luthier report {os.path.relpath(BUILD / 'run')} -o {page}")
    if len(set(texts)) > 1 or PROMPT not in text or counter != executed:
        print("NOT EQUAL")
        return 1
    print("All texts are equal, and so are the counts of the tool and of the device.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LuthierError as problem:
        sys.exit(f"demo-llm: {problem}")
