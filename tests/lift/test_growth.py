"""The work of lifting code with calls is linear in the code: functions analysed and blocks built, not time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from growth_programs import call_sites, callees, chain, pointers, sharing
from luthier.lifting import lift, lifter
from luthier.lifting.addresses.analysis import AddressAnalysis
from luthier.lifting.addresses.pointers import pointed_functions
from luthier.lifting.code.graph import Graph
from luthier.lifting.code.text import text_of
from luthier.objects import CodeObject

DEPTH = 240


class Work:
    """Counts of what lifting does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks = self.analyses = 0
        build, analyse = lifter.build_graph, AddressAnalysis.run

        def built(*arguments: object) -> Graph:
            graph = build(*arguments)  # type: ignore[arg-type]
            self.blocks += len(graph.first)
            return graph

        def analysed(analysis: AddressAnalysis, *arguments: object, alone: bool) -> bool:
            changed = analyse(analysis, *arguments, alone=alone)  # type: ignore[arg-type]
            self.analyses += analysis.searches
            return changed

        monkeypatch.setattr(lifter, "build_graph", built)
        monkeypatch.setattr(AddressAnalysis, "run", analysed)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.mark.parametrize("make", [callees, call_sites, chain])
def test_calls(make: Callable[[int], CodeObject], work: Work) -> None:
    lifted = lift(make(DEPTH), "k")
    assert len(lifted.functions[0].calls) == (1 if make is chain else DEPTH)
    assert work.analyses <= 2 * len(lifted.functions)
    assert work.blocks <= 4 * len(lifted.blocks)


def test_a_chain_may_be_deeper_than_any_number_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifter, "MOST_ROUNDS", 4)
    lifted = lift(chain(DEPTH), "k")
    assert len(lifted.functions) == DEPTH + 1
    assert not lifted.unknown
    for caller, callee in pairwise(lifted.functions):
        assert [call.callees for call in caller.calls] == [(callee.index,)]


def test_kernels_share_the_analyses_of_functions(work: Work) -> None:
    shared = 100
    object = sharing(3, shared)
    for kernel in object.kernels:
        lift(object, kernel)
    assert work.analyses <= shared + 2 * len(object.kernels)


def test_pointed_functions_are_collected_once() -> None:
    object = pointers(40)
    text = text_of(object, lift(object, "k").isa)
    assert pointed_functions(object, text) is pointed_functions(object, text)
    assert len(pointed_functions(object, text)) == 40
