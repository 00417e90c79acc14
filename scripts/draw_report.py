"""Make docs/report.png, a screenshot of the report page of a run.

Builds tests/report/mix.hip, runs it under three shipped tools on a virtual gfx90a, and opens the page in Debian's
Chromium (installed by `make test`). The page contains times of this machine, so run the script by hand when the page
has changed.

Use: python scripts/draw_report.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from luthier.support.processes import run
from luthier.terminal import say
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "report.png"
PROGRAM = ROOT / "tests" / "report" / "mix.hip"
BROWSER = "/usr/bin/chromium-headless-shell"
TOOLS = ("block_profile", "divergence", "coalescing")
WIDTH, HEIGHT = 1500, 1500


def record(folder: Path) -> Path:
    """Run the program under the tools in `folder` and return its report page."""
    shutil.copy(PROGRAM, folder)
    results, page = folder / "run", folder / "mix.html"
    hipcc = ["env", "HIP_PLATFORM=amd", "hipcc", "--offload-arch=gfx90a", "-O2", "-g", "-w", "mix.hip", "-o", "mix"]
    run(hipcc, cwd=folder)
    luthier = [str(Path(sys.executable).with_name("luthier"))]
    tools = [part for tool in TOOLS for part in ("-t", tool)]
    run([*luthier, "run", *tools, "--device", "emu:gfx90a", "-o", str(results), "--", "./mix"], cwd=folder)
    run([*luthier, "report", str(results), "--format", "html", "-o", str(page)], cwd=folder)
    return page


def photograph(page: Path, picture: Path) -> None:
    """Write a screenshot of the upper part of a page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached")
        opened.screenshot(path=picture)
        browser.close()


def main() -> int:
    """Make the screenshot and return the exit status."""
    with tempfile.TemporaryDirectory(prefix="luthier-report-") as folder:
        photograph(record(Path(folder)), PICTURE)
    say(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
