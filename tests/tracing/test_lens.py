"""The logit lens of a trace, against longhand."""

from __future__ import annotations

import json
import math

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny, tokens, unsettle
from tests.tracing.test_recorder import CLOSE, traced
from yuriiformer.model.context import Context
from yuriiformer.tracing import measures
from yuriiformer.tracing.page import run_data, trace_text


@torch.no_grad()
@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_the_lens_against_longhand(oracles):
    model, ids, found = traced("polyak-lie-trotter", oracles, valid_vocab=23)
    streams = model.start_streams(ids[None], torch.arange(len(ids)))
    rows = [streams["X"]]
    for block in model.blocks:
        streams = block(streams, Context(torch.arange(len(ids))))
        rows.append(streams["X"])
    shares = [(model.norm(X) @ model.token_table.T).softmax(-1)[0] for X in rows]
    for row, p in enumerate(shares):
        for i in range(len(ids) - 1):
            true = int(ids[i + 1])
            assert found.lens.loss[row, i].item() == pytest.approx(-math.log(p[i, true]))
            assert found.lens.rank[row, i] == 1 + sum(float(x) > p[i, true] for x in p[i, :23])
            assert found.lens.probability[row, i].item() == pytest.approx(p[i, true].item())
        kl = [
            sum(float(b * (b / a).log()) for a, b in zip(*both, strict=True))
            for both in zip(p, shares[-1], strict=True)
        ]
        assert found.lens.kl[row].tolist() == pytest.approx(kl, abs=1e-12)
        best = p[:, :23].sort(descending=True)
        assert torch.equal(found.lens.top[row], best.indices[:, :5])
        torch.testing.assert_close(found.lens.top_probability[row], best.values[:, :5], **CLOSE)
    assert found.lens.loss[:, -1].isnan().all()  # nothing is known to follow
    assert found.lens.rank[:, -1].isnan().all()
    winners = [p[:, :23].argmax(-1).tolist() for p in shares]
    for i, depth in enumerate(found.lens.effective_depth.int().tolist()):
        assert all(row[i] == winners[-1][i] for row in winners[depth:])
        assert depth == 0 or winners[depth - 1][i] != winners[-1][i]
    assert len(set(found.lens.effective_depth.tolist())) > 1


def test_the_last_row_is_the_models_own_loss():
    model = unsettle(tiny())
    ids = tokens(model)[0]
    found = yf.trace(model, ids[:-1], ids[1:])
    assert found.lens.loss[-1].mean().item() == pytest.approx(
        model(ids[None, :-1], ids[None, 1:]).item(), rel=1e-5
    )
    assert (found.lens.kl[-1] == 0).all()


def test_tokens_in_parts_give_the_same(monkeypatch):
    model, ids, whole = traced("nesterov-lie-trotter")
    monkeypatch.setattr(measures, "CHUNK_ELEMENTS", 4 * 29)  # four tokens at a time of nine
    parts = yf.trace(model, ids)
    for name, value in vars(whole.lens).items():
        torch.testing.assert_close(getattr(parts.lens, name), value, **CLOSE)


def test_with_streams_in_bfloat16_the_last_row_is_still_the_models_own():
    model = unsettle(tiny())
    model.stream_dtype = torch.bfloat16
    ids = tokens(model)[0]
    found = yf.trace(model, ids[:-1], ids[1:])
    logits = model(ids[None, :-1])[0].detach()
    assert torch.equal(found.logits, logits)
    own = logits.double().log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
    torch.testing.assert_close(found.lens.loss[-1], -own)


def test_a_diverged_model_has_neither_plane_nor_rank_nor_depth():
    model = tiny()
    with torch.no_grad():
        model.blocks[1].mlp.down.weight.fill_(torch.nan)
    found = yf.trace(model, tokens(model)[0])
    assert found.principal["raw"].points.isnan().all()
    assert found.by_layer["norm_X"][0].isfinite().all()
    assert found.lens.rank[0, :-1].isfinite().all()
    assert found.lens.rank[2:].isnan().all()
    assert found.lens.effective_depth.isnan().all()
    data = run_data(model, [("x", found)], str)
    json.dumps(data, allow_nan=False)
    text = data["texts"][0]
    assert text["effective_depth"] == [None] * 12
    assert text["top"][-1] == [[]] * 12
    about = {"label": "it", "checkpoint": "last", "step": 3}
    assert "effective depth ? of 3" in trace_text({**about, **data})
