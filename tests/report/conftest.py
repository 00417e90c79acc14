"""A browser, and a run of a program with kernels of different cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from luthier.cli.main import main
from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def mix_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of ``mix.hip`` on gfx90a."""
    folder = tmp_path_factory.mktemp("mix")
    build = ["hipcc", "--offload-arch=gfx90a", "-O2", "-g", "-w", str(HERE / "mix.hip"), "-o", str(folder / "mix")]
    subprocess.run(build, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    record = [sys.executable, str(HERE / "record_mix.py"), str(folder / "run"), "emu:gfx90a", str(folder / "mix")]
    subprocess.run(record, check=True, timeout=300)
    return folder / "run"


@dataclass
class Opened:
    """A page in the browser, and its problems."""

    page: Page
    problems: list[str] = field(default_factory=list)
    """Errors, and requests for anything but the page."""

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def eval(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """``open_page(run, against=…, width=…, height=…, color_scheme=…)``: make the page of a run or of a comparison, and
    open it. At the end of the test, no page may have problems."""
    opened: list[Opened] = []

    def open(run: Path, against: Path | None = None, width: int = 1366, height: int = 900, **how: Any) -> Opened:
        made = tmp_path / f"page-{len(opened)}.html"
        other = [] if against is None else ["--against", str(against)]
        assert main(["report", str(run), *other, "--format", "html", "-o", str(made)]) == 0
        page = browser.new_context(viewport={"width": width, "height": height}, **how).new_page()
        page_open = Opened(page)
        opened.append(page_open)
        page.on("console", lambda message: page_open.problems.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: page_open.problems.append(str(error)))
        page.on("request", lambda asked: page_open.problems.append(asked.url) if asked.url != made.as_uri() else None)
        page.goto(made.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
        return page_open

    yield open
    for page_open in opened:
        assert page_open.problems == []
        page_open.page.context.close()
