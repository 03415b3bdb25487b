"""A run that is asked to stop finishes its step, saves, says how to resume, and leaves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.training.runs import (
    command,
    metrics,
    outcome,
    small,
    started,
    steps_done,
    stopped_at,
    tales,
    wait_for,
    whole_run,
    workers,
)
from yuriiformer.runs.checkpoint import newest_whole, read_checkpoint
from yuriiformer.training import trainer
from yuriiformer.training.session import train
from yuriiformer.training.stop import EXIT_CODE, SIGNALS, Stopper

LONG = 5000  # steps of a run that nobody will see the end of


@pytest.mark.parametrize(
    "number",
    [
        *SIGNALS[:2],  # what comes of the others is tested in this process
        *(pytest.param(number, marks=pytest.mark.slow) for number in SIGNALS[2:]),
    ],
    ids=lambda number: number.name,
)
def test_a_signal_saves(tmp_path, number):
    out, log = tmp_path / "out", tmp_path / "log"
    with started(command(out, steps=LONG), log) as process:
        wait_for(lambda: steps_done(out) >= 4, process)
        process.send_signal(number)
        assert process.wait() == EXIT_CODE == 75, log.read_text()
    step = stopped_at(log)
    assert "Traceback" not in log.read_text()
    assert 4 <= step < LONG
    assert read_checkpoint(out / "checkpoints" / "last").step == step
    assert step - steps_done(out) in (0, 1)  # 1: its validation is still to be done
    assert not (out / "checkpoints" / "final").exists()


def test_the_handlers_are_given_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    for number in SIGNALS:
        with Stopper() as stopper:
            os.kill(os.getpid(), number)
            assert stopper.requested == number.name
    with Stopper() as stopper:
        assert stopper.requested is None
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stopper.requested == "SIGUSR1"
        os.kill(os.getpid(), signal.SIGTERM)  # a second one changes nothing
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)  # but who presses Ctrl-C again will not wait
    assert [signal.getsignal(number) for number in SIGNALS] == before


class Signal:
    """Sends this process SIGTERM in the middle of one of a run's validations."""

    def __init__(self, validation: int) -> None:
        self.left = validation

    def total_loss(self, model, batches, stop):
        def some():
            for index, batch in enumerate(batches):
                if index == 1 and not self.left:
                    os.kill(os.getpid(), signal.SIGTERM)
                yield batch
            self.left -= 1

        return self.real(model, some(), stop)

    real = staticmethod(trainer.total_loss)


@pytest.mark.parametrize(("validation", "step"), [(0, 0), (1, 4), (2, 8)])
def test_stopped_while_it_validates(tmp_path, monkeypatch, validation, step):
    """What is left of the validation is done when the run resumes: at the first step, in the
    middle, after the last."""
    out, whole = tmp_path / "out", whole_run()
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "total_loss", Signal(validation).total_loss)
        result = train(small(), tales(), out)
    assert result.outcome == "stopped"
    assert result.state.pending is not None
    assert result.state.pending["step"] == result.state.step == step
    assert [record["step"] for record in metrics(out)] == list(range(step))
    assert not (out / "checkpoints" / "final").exists()
    assert train(small(), tales(), out, resume=True).outcome == "finished"
    assert outcome(out)["metrics"] == outcome(whole)["metrics"]
    assert outcome(out)["final"] == outcome(whole)["final"]
    assert outcome(out)["best"] == outcome(whole)["best"]


def test_stopped_at_every_step(tmp_path):
    """Again and again, a step or two at a time."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    train(small(steps=12), tales(), whole)

    class Impatient:
        def record(self, record):
            os.kill(os.getpid(), signal.SIGUSR1)

        def close(self):
            pass

    outcomes = []
    while not outcomes or outcomes[-1] == "stopped":
        assert len(outcomes) < 20
        result = train(small(steps=12), tales(), out, resume=True, listener=lambda *_: Impatient())
        outcomes.append(result.outcome)
    assert outcomes.count("stopped") >= 5
    assert outcome(out)["final"] == outcome(whole)["final"]
    assert outcome(out)["metrics"] == outcome(whole)["metrics"]


def steps_on_record(out: Path) -> int:
    """In the metrics, or in the checkpoint if the step's validation was cut short."""
    state = json.loads((out / "checkpoints" / "last" / "state.json").read_text())
    if state["pending"] is None:
        return steps_done(out)
    assert state["pending"]["step"] == steps_done(out) + 1
    return state["pending"]["step"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_to_torchrun_saves(tmp_path, number):
    """It hands the signal to its workers, and they agree on the step."""
    out, log = tmp_path / "out", tmp_path / "log"
    with started(command(out, steps=LONG, processes=2), log) as process:
        wait_for(lambda: steps_done(out) >= 4, process)
        ranks = workers(process.pid)
        assert sorted(ranks) == [0, 1]
        process.send_signal(number)
        assert process.wait() != 0
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))
    found, problems = newest_whole(out / "checkpoints")
    assert not problems
    assert found is not None
    assert found.step == stopped_at(log) >= 4
    assert steps_on_record(out) == found.step


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_stops_both(tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    with started(command(out, steps=LONG, processes=2), log) as process:
        wait_for(lambda: steps_done(out) >= 4, process)
        os.kill(workers(process.pid)[1], signal.SIGUSR1)  # not the one that writes
        assert process.wait() != 0
    last = read_checkpoint(out / "checkpoints" / "last")
    assert last.step == stopped_at(log) == steps_on_record(out)
