"""The linear maps of heads: what the model computes with them, and their spectra by hand."""

from __future__ import annotations

import pytest
import torch

from tests.model.tiny import tiny, unsettle
from yuriiformer.model.context import Context
from yuriiformer.model.maps import LinearMap, alignment, kind

EXACT = {"rtol": 0.0, "atol": 1e-10}


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_a_model_attends_by_its_maps(oracles):
    """Scores and answer of a token that sees only itself, from normalised tokens without gain."""
    attn = unsettle(tiny(oracles=oracles)).double().blocks[0].attn
    Y, context = torch.randn(1, 1, 16, dtype=torch.float64), Context(torch.arange(1))
    maps = attn.maps()
    x = attn.norm(Y)[0, 0] / attn.norm.weight
    scores = torch.einsum("d,hde,e->h", x, maps.query_key.matrix, x)
    torch.testing.assert_close(attn.scores(Y, context)[0, :, 0, 0], scores, **EXACT)
    answer = maps.value_output.matrix.sum(0) @ x
    torch.testing.assert_close(attn(Y, context)[0, 0], answer, **EXACT)


def test_spectra_by_the_whole_matrix():
    left, right = torch.randn(3, 7, 2).double(), torch.randn(3, 2, 7).double()
    each = LinearMap(left, right)
    M = left @ right
    S, A = (M + M.mT) / 2, (M - M.mT) / 2
    squares = [part.square().sum((-2, -1)) for part in (S, A)]
    torch.testing.assert_close(each.symmetric, squares[0] / (squares[0] + squares[1]), **EXACT)
    torch.testing.assert_close(each.norm, M.square().sum((-2, -1)).sqrt(), **EXACT)
    whole = torch.linalg.eigvals(M)
    sums = whole.real.sum(-1) / whole.abs().sum(-1)
    torch.testing.assert_close(each.attraction, sums, **EXACT)
    for own, all_of_them in zip(each.eigenvalues, whole, strict=True):
        largest = all_of_them[all_of_them.abs().argsort(descending=True)[:2]]
        torch.testing.assert_close(own.abs().sort()[0], largest.abs().sort()[0], **EXACT)
    other = LinearMap(torch.randn(3, 7, 2).double(), right)
    cosine = torch.cosine_similarity(M.flatten(1), other.matrix.flatten(1))
    torch.testing.assert_close(alignment(each, other), cosine, **EXACT)


def test_maps_of_known_kinds():
    basis = torch.linalg.qr(torch.randn(6, 3).double())[0]

    def of(core):
        return LinearMap((basis @ core)[None], basis.T[None])

    turn = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).double()
    for core, attraction, symmetric, word in (
        (torch.diag(torch.tensor([1.0, 2.0, 3.0])), 1.0, 1.0, "attractive"),
        (torch.diag(torch.tensor([-1.0, -2.0, -3.0])), -1.0, 1.0, "repulsive"),
        (torch.diag(torch.tensor([1.0, -1.0, 0.5])), 0.2, 1.0, "mixed"),
        (turn, 0.0, 0.0, "mixed"),
    ):
        each = of(core.double())
        assert each.attraction.item() == pytest.approx(attraction, abs=1e-12)
        assert each.symmetric.item() == pytest.approx(symmetric, abs=1e-12)
        assert kind(each.attraction.item()) == word


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_a_head_of_a_diverged_model_has_no_spectrum_and_the_others_keep_theirs(bad):
    left, right = torch.randn(3, 7, 2).double(), torch.randn(3, 2, 7).double()
    before = LinearMap(left, right).eigenvalues
    right[1, 0, 3] = bad
    after = LinearMap(left, right).eigenvalues
    assert after[1].isnan().all()
    torch.testing.assert_close(after[[0, 2]], before[[0, 2]], rtol=0.0, atol=0.0)
