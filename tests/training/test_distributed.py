"""Several processes (gloo): the same batches, the same losses, one writer, and nobody missed."""

from __future__ import annotations

import json
import os
import signal
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load

from tests.training.runs import (
    command,
    finish,
    losses,
    metrics,
    outcome,
    small,
    started,
    steps_done,
    stopped_at,
    tales,
    wait_for,
    weights,
    workers,
)
from tests.training.teams import take_place, team
from yuriiformer.cli.main import main
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.training import muon
from yuriiformer.training.muon import Muon
from yuriiformer.training.processes import Processes
from yuriiformer.training.session import train
from yuriiformer.training.step import Batches

RULES = ("gd-lie-trotter", "nesterov-lie-trotter", "hamiltonian")


def train_each_rule(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process, into a folder of its name."""
    take_place(rank, size, port)
    for rule in RULES:
        train(small(rule), data, home / rule)


def give_command(rank: int, size: int, port: int, words: list[str], log: Path) -> None:
    """In a warm process, with a log of its own."""
    take_place(rank, size, port)
    with log.with_suffix(f".{rank}").open("w") as said, redirect_stdout(said):
        assert main(words) == 0


def assert_close(out: Path, reference: Path) -> None:
    """Losses and nearly all final weights to 1e-5, and every step on record once."""
    assert [each[0] for each in losses(out)] == [each[0] for each in losses(reference)]
    for found, expected in zip(losses(out), losses(reference), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    one, other = load(weights(reference)), load(weights(out))
    assert one.keys() == other.keys()
    for name in one:
        # Adam divides a gradient by its own size: where it is hardly more than rounding, single
        # weights may move further apart, on some processors.
        torch.testing.assert_close(other[name], one[name], rtol=0, atol=1e-4, msg=name)
        apart = (other[name] - one[name]).abs() > 1e-5
        assert apart.float().mean() < 1e-3, name


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_together_they_see_what_one_would(size):
    """The sequences of each step and of the validation, in their order, none twice; and the weights
    of the micro-batches make the mean over processes the mean over sequences."""
    store, config = TokenStore.open(tales()), small()
    device = torch.device("cpu")
    alone = Batches(store, config, Processes(0, 1, device))
    team = [Batches(store, config, Processes(rank, size, device)) for rank in range(size)]
    for step in (0, 1, 7):
        shares = [each.training(step) for each in team]
        joined = torch.cat([micro.batch[0] for share in shares for micro in share])
        expected, _ = store.sequences("train", alone.order.starts(step), config.model.context)
        assert np.array_equal(joined.numpy(), expected)
        for share in shares:
            for micro in share:
                assert micro.weight / size == pytest.approx(len(micro.batch[0]) / 8)
                assert len(micro.batch[0]) <= 3
    whole = torch.cat([inputs for inputs, _ in alone.validation(exact=False)[0]])
    parts = torch.cat([inputs for each in team for inputs, _ in each.validation(exact=False)[0]])
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_exact_loss_sees_every_token_once_whoever_takes_part(size):
    store, config = TokenStore.open(tales()), small()
    team = [Batches(store, config, Processes(r, size, torch.device("cpu"))) for r in range(size)]
    batches = [batch for each in team for batch in each.validation(exact=True)[0]]
    targets = torch.cat([targets.flatten() for _, targets in batches])
    inputs = torch.cat([inputs.flatten() for inputs, _ in batches])
    # As multisets, for the last, shorter window is the leading process's.
    assert sorted(targets.tolist()) == sorted(store.val[1:].tolist())
    assert sorted(inputs.tolist()) == sorted(store.val[:-1].tolist())
    assert len(store.val[1:]) % config.model.context  # or there was no shorter one
    least = min(len(list(each.validation(exact=True)[0])) for each in team)
    assert all(each.validation(exact=True)[1] <= least for each in team)


def test_more_processes_than_sequences_are_refused():
    with pytest.raises(DataError, match=r"8 sequences per step cannot be shared .* of 9"):
        Batches(TokenStore.open(tales()), small(), Processes(0, 9, torch.device("cpu")))


def test_two_processes(tmp_path, capsys):
    """Through the command line."""
    assert main(command(tmp_path / "one", steps=7)[3:]) == 0
    alone = capsys.readouterr()
    team(2, give_command, command(tmp_path / "two", steps=7)[3:], tmp_path / "log")
    together = "".join((tmp_path / f"log.{rank}").read_text() for rank in range(2))
    for said in (alone.out, together):
        assert said.count("finished 7 steps") == 1  # only one speaks
    assert_close(tmp_path / "two", tmp_path / "one")
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 2
    resolved = json.loads((tmp_path / "two" / "config.json").read_text())["resolved"]
    assert resolved["processes"] == 2


@pytest.mark.slow
def test_two_processes_of_torchrun(tmp_path):
    finish(command(tmp_path / "one", steps=7))
    done = finish(command(tmp_path / "two", steps=7, processes=2))
    assert done.stdout.count("finished 7 steps") == 1
    assert_close(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_processes_agrees_with_one(tmp_path, size):
    """Three do not divide the eight sequences of a step; hamiltonian has frozen parameters."""
    (tmp_path / "many").mkdir()
    team(size, train_each_rule, tales(), tmp_path / "many")
    for rule in RULES:
        train(small(rule), tales(), tmp_path / rule)
        assert_close(tmp_path / "many" / rule, tmp_path / rule)
        files = [path.name for path in (tmp_path / "many" / rule).iterdir()]
        assert files.count("metrics.jsonl") == 1
        state = json.loads((tmp_path / "many" / rule / "checkpoints/last/state.json").read_text())
        assert state["processes"] == len(state["generators"]) == size


@pytest.mark.slow
def test_the_command_line_refuses_more_processes_than_sequences(tmp_path):
    words = command(tmp_path / "out", "--sequences", "2", steps=4, processes=3)
    done = finish(words, code=1)
    lines = [line for line in done.stderr.splitlines() if "yurii: " in line]
    assert lines
    assert all("2 sequences per step cannot be shared" in line for line in lines)
    assert "yuriiformer/" not in done.stderr  # no traceback but torchrun's own
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_three_processes_go_on_to_the_bit(tmp_path):
    steps, log = 30, tmp_path / "log"
    finish(command(tmp_path / "whole", steps=steps, processes=3))
    out = tmp_path / "out"
    with started(command(out, steps=steps, processes=3), log) as process:
        wait_for(lambda: steps_done(out) >= 4, process)
        process.terminate()
        process.wait()
    assert 4 <= stopped_at(log) < steps
    assert read_checkpoint(out / "checkpoints" / "last").step == stopped_at(log)
    finish(command(out, "--resume", steps=steps, processes=3))
    assert outcome(out) == outcome(tmp_path / "whole")


# Read by every Python of a job. When all are started again the second comes late, so that the first
# would meet what their predecessors left in torchrun's store.
LATE = """
import os, time
if os.environ.get("RANK") == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
    time.sleep(4)
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_is_missed_and_replaced(tmp_path, monkeypatch):
    """torchrun starts all again, they resume from ``last``, and the bits are those of a run without
    accidents. Once a follower dies, once the process that writes."""
    steps, elastic, log = 60, ("--max-restarts", "3"), tmp_path / "log"
    whole, out = tmp_path / "whole", tmp_path / "out"
    finish(command(whole, steps=steps, processes=2))
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(LATE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "late"))
    with started(command(out, steps=steps, processes=2, elastic=elastic), log) as process:
        for rank, least in ((1, 8), (0, 24)):
            assert wait_for(lambda least=least: steps_done(out) >= least, process)
            os.kill(workers(process.pid)[rank], signal.SIGKILL)
        assert process.wait() == 0, log.read_text()
    assert log.read_text().count("resuming from step") == 2
    assert outcome(out) == outcome(whole)
    assert [record["step"] for record in metrics(out)] == list(range(steps + 1))


@pytest.mark.slow
def test_a_restart_does_not_take_over_a_run_that_was_there(tmp_path):
    """What is refused without --resume is refused also when torchrun tries again."""
    out = tmp_path / "out"
    with started(command(out, steps=5000), tmp_path / "log") as process:
        wait_for(lambda: steps_done(out) >= 4, process)
        process.terminate()
        process.wait()
    before = metrics(out)
    words = command(out, steps=5000, processes=1, elastic=("--max-restarts", "1"))
    with started(words, tmp_path / "log") as process:
        wait_for(lambda: steps_done(out) > len(before), process)
        process.terminate()
        process.wait()
    assert (tmp_path / "log").read_text().count("holds a run already") == 2
    assert metrics(out) == before


SHAPES = [(8, 4)] * 5 + [(4, 4)] * 3 + [(6, 12)] + [(12, 4)] * 2
PARTS = 3  # of the last two


def matrices() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def take_steps(group: dist.ProcessGroup | None) -> list[torch.Tensor]:
    """The matrices after three steps of Muon, alone or with others."""
    params = matrices()
    groups = [{"params": params[:-2]}, {"params": params[-2:], "parts": PARTS}]
    optimizer = Muon(groups, 0.05, weight_decay=0.1, group=group)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach() for p in params]


def one_of_many(rank: int, size: int, home: str) -> None:
    """A process that shares Muon's work, and notes the shapes of what it was given."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{home}/store", rank=rank, world_size=size)
    given, real = [], muon.orthogonalize

    def counted(stack, **more):
        given.append(tuple(stack.shape))
        return real(stack, **more)

    muon.orthogonalize = counted
    result = take_steps(dist.group.WORLD)
    torch.save((result, given), f"{home}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "size", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_muon_is_divided(tmp_path, size):
    """5, 3, 1 and 2 · 3 matrices among processes that do not divide them: the same result on all,
    as on one, and nobody does more than an even share and one matrix."""
    torch.multiprocessing.start_processes(
        one_of_many, (size, str(tmp_path)), nprocs=size, start_method="forkserver"
    )
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(size)]
    alone = take_steps(None)
    for result, _ in results:
        for found, expected, common in zip(result, alone, results[0][0], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
            assert torch.equal(found, common)
    assert not torch.allclose(alone[0], matrices()[0], atol=1e-2)
    assert sum(stack[0] for _, given in results for stack in given) == 3 * (5 + 3 + 1 + 2 * PARTS)
    work = [sum(n * r * c * min(r, c) for n, r, c in given) / 3 for _, given in results]
    assert max(work) <= sum(work) / size + 6 * 12 * 6
