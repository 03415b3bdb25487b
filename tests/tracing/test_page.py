"""From traces to the page's payload and the terminal's table."""

from __future__ import annotations

import json

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import EVERY, tiny, tokens, unsettle
from yuriiformer.methods.drawing.equations import step_labels
from yuriiformer.tracing.page import depth_payload, reading, run_data, trace_text
from yuriiformer.tracing.recorder import BY_STEP, trace


def traced(rule="nesterov-lie-trotter", oracles="paper", texts=2):
    model = unsettle(tiny(rule, oracles))
    found = [(f"text {i}", trace(model, tokens(model, length=7, seed=i)[0])) for i in range(texts)]
    about = {"label": rule, "folder": "runs/it", "checkpoint": "best", "step": 7, "sha256": "ab"}
    return {**about, **run_data(model, found, lambda token: f" t{token}")}


def payload(*runs):
    return depth_payload({"runs": runs}, title="T", made="now", commands=[("this page", "yurii")])


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_every_rule_makes_a_whole_payload(rule, oracles):
    run = payload(traced(rule, oracles, texts=1))["runs"][0]
    json.dumps(run, allow_nan=False)
    text, steps, rows = run["texts"][0], len(run["steps"]), run["n_layer"] + 1
    for values in (*text["by_step"].values(), *text["heads"].values()):
        assert len(values) == steps
        assert any(value is not None for value in values)
    for values in text["by_layer"].values():
        assert [len(row) for row in values] == [7] * rows
    for values in text["whole"].values():
        assert len(values) == rows
    for pca in text["pca"].values():
        assert len(pca["places"]) == len(pca["points"])
        assert pca["places"][0]["label"] == "start"
        assert pca["places"][-1]["row"] == run["n_layer"]
    assert set(text["by_step"]) <= set(BY_STEP)
    explained = set(reading())
    assert {*text["by_step"], *text["whole"], *text["heads"]} <= explained
    assert {each["name"] for each in run["maps"]} <= explained
    for each in run["maps"]:
        heads = 1 if each["name"] == "mlp_alignment" else 4
        assert [len(layer) for layer in each["layers"]] == [heads] * run["n_layer"]
    assert len(run["maps"]) == (8 if oracles == "paper" else 7)  # a gated MLP has no A and W
    others = {f"norm_{name}" for name in run["streams"] if name not in ("X", "V")}
    assert set(text["by_layer"]) <= explained | others


def test_steps_are_labelled_as_in_the_equations():
    assert step_labels(yf.rules["nesterov-lie-trotter"]) == [
        "Attnₜ(Xₜ + μₜ Vₜ)",
        "Vₜ₊½",
        "Xₜ₊½",
        "MLPₜ(Xₜ₊½ + μₜ₊½ Vₜ₊½)",
        "Vₜ₊₁",
        "Xₜ₊₁",
    ]
    run = payload(traced("hamiltonian", texts=1))["runs"][0]
    last = [step["label"] for step in run["steps"] if step["layer"] == 2]
    assert last == ["Attnₜ(Xₜ + μₜ Vₜ)", "Vₜ₊½", "Xₜ₊₁"]


def test_numbers_that_are_none_and_texts_that_are_odd():
    model = tiny()
    with torch.no_grad():
        model.blocks[0].attn.out.weight.fill_(torch.inf)
    found = [("x", trace(model, tokens(model)[0]))]
    data = run_data(model, found, lambda token: "</script>")
    json.dumps(data, allow_nan=False)
    assert data["texts"][0]["by_layer"]["norm_X"][1] == [None] * 12


def test_the_terminals_table_has_the_means():
    run = traced()
    said = trace_text(run).splitlines()
    head = said[2].split("  ")
    assert [word.strip() for word in head if word.strip()][:3] == ["blocks", "loss", "rank"]
    for row, line in zip(range(4), said[3:], strict=False):
        values = [v for t in run["texts"] for v in t["by_layer"]["lens_loss"][row] if v is not None]
        assert line[13:].split()[0] == f"{sum(values) / len(values):.4g}"
    assert "14 tokens" in said[0]
    depths = [depth for text in run["texts"] for depth in text["effective_depth"]]
    assert f"mean effective depth {sum(depths) / len(depths):.1f} of 3" in said[-2]
    assert said[-1].startswith("value–output maps of 12 heads: ")
    assert sum(int(word) for word in said[-1].split(": ")[1].split() if word.isdigit()) == 12
