"""Steps that are not finite, coefficients at an end of their range, evaluation's effect: none."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import yuriiformer as yf
from tests.model.tiny import tiny, tokens
from tests.training.corpora import tales
from yuriiformer.cli.main import main
from yuriiformer.config import TrainConfig, Validation
from yuriiformer.errors import NonFiniteError
from yuriiformer.evaluation.validation import total_loss
from yuriiformer.model import oracles as registry
from yuriiformer.model.oracles import MLP, Attention, check_paper, layer_norm
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training import trainer
from yuriiformer.training.journal import coefficient_record, saturated
from yuriiformer.training.presets import preset
from yuriiformer.training.step import StepResult

BAD = 5  # the step that goes wrong


def small(steps: int = 8, **recipe) -> TrainConfig:
    config = preset("tales-tiny", "nesterov-lie-trotter")
    return replace(
        config,
        recipe=replace(config.recipe, steps=steps, sequences=4, **recipe),
        validation=Validation(eval_every=2, eval_sequences=4),
        machine=replace(config.machine, micro_batch=3),
        output=replace(config.output, tensorboard=False, save_every=2),
    )


@pytest.fixture
def poisoned(monkeypatch):
    """One step's gradient becomes infinite, as an overflow would make it."""
    real = trainer.train_step

    def step(model, batches, optimizer, team, dtype, number, **options) -> StepResult:
        if number != BAD:
            return real(model, batches, optimizer, team, dtype, number, **options)
        table = model.token_table
        handle = table.register_hook(lambda gradient: gradient * math.inf)
        try:
            return real(model, batches, optimizer, team, dtype, number, **options)
        finally:
            handle.remove()

    monkeypatch.setattr(trainer, "train_step", step)


def test_a_step_that_is_not_finite_stops_the_run(tmp_path, poisoned):
    out = tmp_path / "run"
    with pytest.raises(NonFiniteError, match=rf"step {BAD} of rule 'nesterov-lie-trotter'"):
        yf.train(small(), tales(), out)
    report = json.loads((out / "nonfinite.json").read_text())
    assert report["step"] == BAD
    assert report["rule"] == "nesterov-lie-trotter"
    store = yf.TokenStore.open(tales())
    order = yf.BatchOrder(len(store.train), 64, 4, seed=0)
    assert report["starts"] == order.starts(BAD).tolist()
    assert report["parameters_without_finite_gradient"] == ["starts.X_0.tokens.weight"]
    assert [len(losses) for losses in report["losses_of_processes"]] == [2]  # micro-batches
    last = read_checkpoint(out / "checkpoints" / "last")
    assert last.step == 4
    weights = yf.load_model(last.folder).state_dict()
    assert all(bool(weight.isfinite().all()) for weight in weights.values())
    assert [r["step"] for r in read_metrics(out / "metrics.jsonl")] == list(range(BAD + 1))


def test_it_can_be_skipped_and_is_counted(tmp_path, poisoned):
    said: list[str] = []
    result = yf.train(small(on_nonfinite="skip"), tales(), tmp_path / "run", say=said.append)
    assert result.outcome == "finished"
    assert result.state.skipped == 1
    assert any(f"step {BAD} is skipped" in text for text in said)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if "skipped" in r] == [BAD + 1]
    assert records[BAD + 1]["grad_norm"] in ("inf", "nan")
    assert math.isfinite(records[-1]["val_loss"])


def test_a_skipped_step_leaves_weights_and_moments(tmp_path, poisoned, monkeypatch):
    """Before and after it the optimiser's state is the same to the bit."""
    seen = {}
    real = trainer.Trainer._conclude

    def spy(self, record):
        if record["step"] in (BAD, BAD + 1):
            seen[record["step"]] = [
                t.clone()
                for t in (*self.model.parameters(), *self.optimizer.state_tensors().values())
            ]
        return real(self, record)

    monkeypatch.setattr(trainer.Trainer, "_conclude", spy)
    yf.train(small(on_nonfinite="skip"), tales(), tmp_path / "run")
    for one, two in zip(seen[BAD], seen[BAD + 1], strict=True):
        assert torch.equal(one, two)


def test_the_command_has_a_code_for_it(tmp_path, poisoned, capsys):
    arguments = [
        "train",
        "--data",
        str(tales()),
        "--out",
        str(tmp_path / "r"),
        "--steps",
        "8",
        "--sequences",
        "4",
        "--no-tensorboard",
    ]
    assert main(arguments) == 3
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("yurii:")]
    assert len(error) == 1
    assert "no checkpoint was saved before it" in error[0]


def test_a_validation_that_is_not_finite_stops_too(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "total_loss", lambda *_: (math.nan, 4))
    with pytest.raises(NonFiniteError, match="validation loss after step 0 is nan"):
        yf.train(small(), tales(), tmp_path / "run")


def test_saturated_coefficients_are_said(tmp_path, capsys):
    model = tiny("nesterov-lie-trotter")
    assert saturated(model) == []
    with torch.no_grad():
        model.blocks[1].coefficients.raw_beta.fill_(9.0)
        model.blocks[2].coefficients.raw_mu_half.fill_(-9.0)
        model.blocks[0].coefficients.raw_gamma.fill_(-30.0)  # gamma has no end to reach
    found = saturated(model)
    assert found == [
        "beta of layer 1 is within 0.001 of 1",
        "mu_half of layer 2 is within 0.001 of 0",
    ]
    assert coefficient_record(model)["beta"][1] == pytest.approx(1.0, abs=1e-3)
    assert saturated(tiny("nesterov-lie-trotter+mu=0.9999+fixed=mu")) == []  # not learned
    rule = "nesterov-lie-trotter+beta=0.9995"
    arguments = [
        "train",
        "--data",
        str(tales()),
        "--out",
        str(tmp_path / "r"),
        "--rule",
        rule,
        "--steps",
        "1",
        "--sequences",
        "2",
        "--no-tensorboard",
    ]
    assert main(arguments) == 0
    assert "saturated: beta of layer 0 is within 0.001 of 1" in capsys.readouterr().out


def test_coefficients_per_channel_are_logged_by_mean_and_range():
    record = coefficient_record(tiny("nesterov-lie-trotter+channel=mu"))
    assert set(record) >= {"mu", "mu.min", "mu.max", "beta"}
    assert len(record["mu"]) == 3


def test_evaluation_leaves_training_alone():
    model = tiny()
    ids = tokens(model)
    before = torch.get_rng_state()
    modes = []
    model.register_forward_hook(lambda module, *_: modes.append(module.training))
    model.train()
    nats, count = total_loss(model, [(ids, ids)] * 2)
    assert count == 2 * ids.numel()
    assert nats / count == pytest.approx(model(ids, ids).item(), rel=1e-6)
    assert modes == [False, False, True]
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(p.grad is None for p in model.parameters())


class NoisyMLP(MLP):
    """Somebody else's oracle, which draws random numbers."""

    def forward(self, Y, context):
        return nn.functional.dropout(super().forward(Y, context), 0.1, self.training)


def test_generators_go_on_where_they_were(tmp_path, monkeypatch):
    """With dropout in an oracle a stopped run still ends in the bits of one that was not."""
    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    yf.register_oracles("noisy", yf.OraclePair(Attention, NoisyMLP, layer_norm, True, check_paper))
    config = small()
    config = replace(config, model=replace(config.model, oracles="noisy"))
    yf.train(config, tales(), tmp_path / "whole")

    class StopAt:
        def record(self, record):
            if record["step"] == 4:
                raise KeyboardInterrupt  # as sudden as a kill: step 4 is saved, 5 is not

        def close(self): ...

    with pytest.raises(KeyboardInterrupt):
        yf.train(config, tales(), tmp_path / "parted", listener=lambda *_: StopAt())
    torch.rand(100)  # whatever happened to the generators since
    yf.train(config, tales(), tmp_path / "parted", resume=True)
    finals = [
        (tmp_path / name / "checkpoints/final/model.safetensors").read_bytes()
        for name in ("whole", "parted")
    ]
    assert finals[0] == finals[1]
    again = replace(config, recipe=replace(config.recipe, seed=1))
    yf.train(again, tales(), tmp_path / "other")
    other = (tmp_path / "other/checkpoints/final/model.safetensors").read_bytes()
    assert other != finals[0]
