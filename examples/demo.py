"""`make demo`: splice a tool into real kernels, run both versions, and compare their results.

pip builds the tool as a package in isolation; the kernels are compiled from HIP. The code objects, as a GPU would load
them, run on the emulated device. Then the whole programs, built by plain hipcc, run under `luthier run`, above the real
ROCm.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from luthier.errors import LuthierError
from luthier.objects import load_object
from luthier.support.processes import run
from luthier.tool import parse_tool
from luthier.verify import verify_object
from luthier.verify.launch_plan import LaunchPlan, read_plans

from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).resolve().parents[1]
APPS = ROOT / "examples" / "apps"
BUILD = ROOT / "build" / "demo"
TARGETS = ("gfx90a", "gfx942", "gfx1100")
TOOL = "instr_count"
"""Built here as any user would; `make setup` has installed all others."""
RUN_TARGET = "gfx90a"
"""Target of whole programs, which the ROCm of Debian 12 supports."""
OTHER_DATA = {"function_call"}
"""Programs whose executed instructions depend on their data, which differs from that of the launch plan."""
MODES = {
    "instr_count": "per lane",
    "instr_count:per_wave=true": "per wave",
    "opcode_histogram": "opcodes",
    "block_profile": "blocks",
}


def build_tool() -> None:
    """Make a wheel of luthier, then build and install a tool as any user would: pip, isolated."""
    wheels = ROOT / "build" / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, ROOT])
    constraints = {"PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_NO_REQUIRE_HASHES": "1"}  # no luthier's
    environment = {**os.environ, "PIP_FIND_LINKS": str(wheels), **constraints}
    run([*pip, "install", "--no-deps", "--force-reinstall", ROOT / "examples" / "tools" / TOOL], env=environment)


def compile_app(name: str, target: str, toolchain: Toolchain) -> Path:
    """Return a code object of one application for one target."""
    output = BUILD / f"{name}-{target}.hsaco"
    run(
        [
            toolchain.clang,
            *toolchain.device_flags(target),
            "--offload-device-only",
            "-O2",
            APPS / f"{name}.hip",
            "-o",
            output,
        ]
    )
    return output


def run_programs(plans: Mapping[str, LaunchPlan]) -> int:
    """Run whole programs under the tool, and return the number of counters that differ from the verified ones."""
    print(f"\nrunning unmodified programs under luthier run -t instr_count on a virtual {RUN_TARGET} ...\n", flush=True)
    print(f"{'program':16} {'prints':8} {'counter':>9} {'verified':>9}")
    failures = 0
    for name in sorted(plans.keys() - OTHER_DATA):
        program, results = BUILD / name, BUILD / f"{name}.json"
        run(
            ["hipcc", f"--offload-arch={RUN_TARGET}", "-O2", APPS / f"{name}.hip", "-o", program],
            env={**os.environ, "HIP_PLATFORM": "amd"},
        )
        command = [Path(sys.executable).with_name("luthier"), "run", "-t", "instr_count", "--json", results]
        output = run([*command, "--device", f"emu:{RUN_TARGET}", "--", program]).strip()
        counter = sum(
            one["value"] for one in json.loads(results.read_text())["variables"] if one["variable"] == "counter"
        )
        verdicts = verify_object(load_object(program, RUN_TARGET), parse_tool("instr_count"), plans=plans)
        verified = sum(verdict.counters["counter"] for verdict in verdicts)
        failures += counter != verified
        print(
            f"{name:16} {output:8} {counter:9} {verified:9}  {'equal' if counter == verified else 'NOT EQUAL'}",
            flush=True,
        )
    return failures


def main() -> int:
    """Build, compile, verify, run, print."""
    BUILD.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    print(f"building the tool package examples/tools/{TOOL} with pip ...", flush=True)
    build_tool()
    plans = read_plans(APPS / "launch.toml")
    toolchain = Toolchain.find()
    print(f"compiling {len(plans)} applications for {', '.join(TARGETS)} with {toolchain.clang} ...\n", flush=True)
    print(
        f"{'target':8} {'kernel':16} {'counting':9} {'counter':>9} {'sites':>6} {'VGPRs':>8} "
        f"{'wave-instructions':>19}  proof"
    )
    failures = 0
    for target in TARGETS:
        for name in plans:
            object = load_object(compile_app(name, target, toolchain))
            for specification, mode in MODES.items():
                for verdict in verify_object(object, parse_tool(specification), plans=plans):
                    failures += not verdict.equal
                    patch = verdict.patch
                    sites, vgprs = (patch.sites, f"{patch.vgprs[0]}→{patch.vgprs[1]}") if patch else (0, "")
                    executed = f"{verdict.instructions[0]}→{verdict.instructions[1]}"
                    counter = verdict.counters.get("counter", "")
                    print(
                        f"{target:8} {verdict.kernel:16} {mode:9} {counter:9} {sites:6} "
                        f"{vgprs:>8} {executed:>19}  {'equal' if verdict.equal else '; '.join(verdict.problems)}",
                        flush=True,
                    )
    failures += run_programs(plans)
    print(f"\n{time.perf_counter() - began:.0f} s. ", end="")
    if failures:
        print(f"{failures} results are NOT equal.")
        return 1
    print(
        "For every kernel, and in whole programs: output bytes equal to the original's, "
        "counters equal to the emulated device's own counts."
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LuthierError as problem:
        sys.exit(f"demo: {problem}")
