"""The environment of a program: variables, and files of the driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.run import parse_devices, program, topology


@pytest.mark.parametrize(("given", "expected"), [({}, "^patcher"), ({"OMPI_MCA_memory": "none"}, "none")])
def test_open_mpi_leaves_mmap_alone(tmp_path: Path, given: dict[str, str], expected: str) -> None:
    """Unless the user has set it."""
    assert program.environment(given, tmp_path, tools=False)["OMPI_MCA_memory"] == expected


def test_links_between_nodes(tmp_path: Path) -> None:
    """Each node has one to each other one, with the bandwidths that RCCL asks for."""
    topology.write(tmp_path, parse_devices("emu:gfx942,emu:gfx90a"))
    links = {}
    for path in tmp_path.glob("topology/nodes/*/io_links/*/properties"):
        link = {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
        assert 0 < link["min_bandwidth"] <= link["max_bandwidth"]
        links[link["node_from"], link["node_to"]] = link["weight"]
    assert links == {(0, 1): 20, (0, 2): 20, (1, 0): 20, (2, 0): 20, (1, 2): 40, (2, 1): 40}
