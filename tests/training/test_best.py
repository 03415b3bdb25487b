"""Which model is kept as the best, and that validating leaves training alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.training.runs import StopAt, StopRun, small, tales
from yuriiformer.runs.checkpoint import BEST, read_checkpoint
from yuriiformer.training import trainer
from yuriiformer.training.session import train

LOSSES = [5.0, 4.0, 3.0, 6.0, 3.5, 8.0, 9.0]  # of steps 0 to 6: the lowest is that of step 2


def told(monkeypatch, losses):
    """Validations give these losses, in turn."""
    left = iter(losses)
    monkeypatch.setattr(trainer, "total_loss", lambda *_: (4 * next(left), 4))


def config():
    base = small(steps=6, eval_every=1)
    return replace(base, output=replace(base.output, save_every=1))


def check(folder, result):
    best = read_checkpoint(folder / "checkpoints" / BEST)
    assert (best.step, best.manifest["about"]["val_loss"]) == (2, 3.0)
    assert (result.state.best_step, result.state.best_loss) == (2, 3.0)


def test_the_best_is_the_lowest_not_the_latest(tmp_path, monkeypatch):
    told(monkeypatch, LOSSES)
    check(tmp_path / "run", train(config(), tales(), tmp_path / "run"))


@pytest.mark.parametrize("step", [3, 4])
def test_the_best_is_remembered_by_a_run_that_is_resumed(tmp_path, monkeypatch, step):
    told(monkeypatch, LOSSES)
    with pytest.raises(StopRun):
        train(config(), tales(), tmp_path / "run", listener=lambda *_: StopAt(step))
    told(monkeypatch, LOSSES[step:])  # its last checkpoint is of the step before
    check(tmp_path / "run", train(config(), tales(), tmp_path / "run", resume=True))


def test_validating_does_not_move_the_random_numbers(tmp_path):
    states = []
    for every in (0, 1):
        train(small(steps=3, eval_every=every), tales(), tmp_path / f"every-{every}")
        states.append(torch.get_rng_state())
    assert torch.equal(*states)
