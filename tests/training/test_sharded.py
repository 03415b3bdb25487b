"""A model divided among processes (FSDP2 over gloo): the same start, the same losses, a resident
memory that falls, and matrices orthogonalised whole by one owner each."""

from __future__ import annotations

import ctypes
import gc
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.training.fakes import Storages
from tests.training.runs import losses, metrics, small, tales
from tests.training.teams import bare_losses, divided, parts_of, take_place, team
from yuriiformer.cli.main import main
from yuriiformer.config import TrainConfig
from yuriiformer.costs.run import stored_bytes
from yuriiformer.errors import ConfigError
from yuriiformer.model.device import FIXED, SHARE
from yuriiformer.model.files import load_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.model.shards import is_sharded, local, shard_bounds
from yuriiformer.model.tensor_files import TensorFiles
from yuriiformer.planning.devices import find_device
from yuriiformer.planning.plan import Circumstances, make_plan
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.training import muon, session, sharding
from yuriiformer.training import state as training_state
from yuriiformer.training.estimate import MemoryEstimate
from yuriiformer.training.processes import Processes
from yuriiformer.training.saving import Saver
from yuriiformer.training.session import resolve_run, train
from yuriiformer.training.sharding import undivided
from yuriiformer.training.state import State, restore
from yuriiformer.training.step import accumulate, train_step

CPU = torch.device("cpu")
Tensors = dict[str, Tensor]


def sharded(rule: str = "nesterov-lie-trotter", **changes) -> TrainConfig:
    return small(rule, **changes).with_(parallel="fsdp")


def start_and_gradients(config: TrainConfig, data: Path) -> tuple[Tensors, Tensors]:
    """A model as it begins, and the gradient of its first step, of eight sequences in all."""
    here, model, _, _ = parts_of(config, data)
    accumulate(model, here.batches.training(0), here.processes, here.dtype)
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return model.state_dict(), found


def begin_and_train(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: its rows of two models as they begin and of their first gradients, then a
    run of one of them."""
    take_place(rank, size, port)
    for rule in ("nesterov-fixed", "hamiltonian"):
        start, gradients = start_and_gradients(sharded(rule), data)
        assert all(is_sharded(tensor) == (tensor.ndim > 1) for tensor in start.values())
        for name, tensors in (("start", start), ("gradients", gradients)):
            rows = {name: local(tensor) for name, tensor in tensors.items()}
            save_file({n: t for n, t in rows.items() if t.numel()}, home / f"{rule}-{name}-{rank}")
    train(sharded(), data, home / "run")


def test_two_processes_share_a_model(tmp_path):
    """The start is that of one process to the bit; gradients and losses are its up to rounding
    (gloo's own average has had faults); what is saved is a model like any other."""
    team(2, begin_and_train, tales(), tmp_path)
    for rule in ("nesterov-fixed", "hamiltonian"):
        start, gradients = start_and_gradients(small(rule), tales())
        for name, tensor in start.items():
            assert torch.equal(joined(tmp_path / f"{rule}-start", name), tensor), name
        for name, tensor in gradients.items():
            found, size = joined(tmp_path / f"{rule}-gradients", name), float(tensor.abs().max())
            torch.testing.assert_close(found, tensor, rtol=0, atol=2e-6 * size + 1e-9)
    train(small(), tales(), tmp_path / "one")
    for found, expected in zip(losses(tmp_path / "run"), losses(tmp_path / "one"), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    resolved = json.loads((tmp_path / "run" / "config.json").read_text())["resolved"]
    assert resolved["parallel"] == "fsdp 1 x 2"
    final, alone = (load_model(tmp_path / n / "checkpoints" / "final") for n in ("run", "one"))
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(final.state_dict()[name], tensor, rtol=0, atol=1e-4)


def joined(path: Path, name: str) -> Tensor:
    """A tensor of which two processes have written their rows, or which both have whole."""
    parts = [load_file(path.with_name(f"{path.name}-{rank}")) for rank in range(2)]
    here = [part[name] for part in parts if name in part]
    if here[0].ndim > 1:
        return torch.cat(here)
    assert all(torch.equal(each, here[0]) for each in here)
    return here[0]


def begin_and_save(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: bytes at most while a model begins and while a run is saved, bytes that
    are there anyway, what was sent, and what is read to resume."""
    take_place(rank, size, port)
    config = sharded("gd-lie-trotter", steps=2).with_(n_layer=8, n_head=2, d_model=256)
    with Storages() as begun:
        here, model, module, optimizer = parts_of(config, data)
    batches = here.batches.training(0)
    train_step(module, batches, optimizer, here.processes, here.dtype, 0)
    state = [*model.state_dict().values(), *optimizer.state_tensors().values()]
    own, largest = sum(local(t).nbytes for t in state), max(t.nbytes for t in state)
    with Storages() as saved:
        Saver(home / "saved", model, optimizer, here.processes, {}).save_last(State(step=1))
    before, read = [local(each).clone() for each in state], 0

    class Counted(TensorFiles):
        def rows(self, *given):
            nonlocal read
            found = super().rows(*given)
            read += found.nbytes
            return found

    training_state.TensorFiles = Counted
    with torch.no_grad():
        for each in state:
            local(each).zero_()
    last = read_checkpoint(home / "saved" / "last") if rank == 0 else None
    restore(last, model, optimizer, here.processes, seed=0)
    state = [*model.state_dict().values(), *optimizer.state_tensors().values()]
    assert all(torch.equal(local(a), b) for a, b in zip(state, before, strict=True))
    found = [begun.peak, begun.alive, largest, saved.peak, own, saved.sent.total(), read]
    (home / str(rank)).write_text(json.dumps(found))


def test_no_process_ever_has_the_whole_model(tmp_path):
    """It begins a tensor at a time (one is drawn while the one before goes). To save it, nothing is
    copied, and nothing is sent but what the processes tell each other. To resume, each reads its
    rows."""
    team(3, begin_and_save, tales(), tmp_path)
    for rank in range(3):
        begun, rows, largest, saved, own, sent, read = json.loads(
            (tmp_path / str(rank)).read_text()
        )
        assert begun <= rows + 2 * largest < 1.5 * rows
        assert saved <= 1.01 * own
        assert sent < 0.01 * own
        assert read == own


@pytest.mark.parametrize(("rows", "shards"), [(1, 4), (3, 4), (7, 3), (8, 4), (61, 7), (5, 2)])
def test_rows_are_divided_as_torch_divides_them(rows, shards):
    bounds = [shard_bounds(rows, shards, shard) for shard in range(shards)]
    chunks = torch.arange(rows).chunk(shards)
    expected = [(int(c[0]), int(c[-1]) + 1) for c in chunks] + [(rows, rows)] * shards
    assert bounds == expected[:shards]


def test_a_group_that_does_not_divide_the_processes_is_refused():
    with pytest.raises(ConfigError, match=r"--shard-group 3 does not divide .* processes \(4\)"):
        Processes(0, 4, CPU).check_shards(3)
    with pytest.raises(ConfigError, match="shard_group is for parallel=fsdp"):
        small().with_(parallel="ddp", shard_group=2)


def say_refused(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: what it says of a command that asks for a group of two."""
    take_place(rank, size, port)
    words = f"train --data {data} --out {home / 'run'} --parallel fsdp --shard-group 2 --device cpu"
    with (home / str(rank)).open("w") as file, redirect_stdout(file), redirect_stderr(file):
        assert main(words.split()) == 2


def test_only_one_process_says_what_is_wrong(tmp_path):
    """And none leaves before all have joined: who still did would find the others gone."""
    team(3, say_refused, tales(), tmp_path)
    said = [(tmp_path / str(rank)).read_text() for rank in range(3)]
    assert said[0].startswith("yurii: --shard-group 2 does not divide the number of processes (3)")
    assert said[1:] == ["", ""]


def choose(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: whether the model is divided, given room for so much of a whole step."""
    take_place(rank, size, port)
    config = resolve_run(small(), data).config
    whole = MemoryEstimate(config, torch.float32, size).at(config.machine.micro_batch).peak
    found = []
    for share in (1.01, 0.99):
        room = (share * whole + FIXED) / (1 - SHARE)
        sharding.device_memory = lambda device, room=room: size * room  # all processes share it
        here = resolve_run(small(), data)
        found.append(here.processes.sharded)
        asked = undivided(small().with_(shard_group=2), here.processes)
        assert (asked is None) == here.processes.sharded
    (home / str(rank)).write_text(json.dumps(found))


def test_auto_divides_what_does_not_fit(tmp_path):
    team(2, choose, tales(), tmp_path)
    for rank in range(2):
        assert json.loads((tmp_path / str(rank)).read_text()) == [False, True]


def test_one_process_has_nothing_to_divide(tmp_path):
    said: list[str] = []
    config = divided(small(steps=1), "fsdp", shard_group=2)  # as a run of several may have it
    train(config, tales(), tmp_path / "run", say=said.append)
    assert said[0].startswith("note: with one process there is nothing to divide")
    assert make_plan(config, Circumstances(find_device("a100-40"))).shards == 1


# --- Muon: an owner per matrix ---


def note_matrices(rank: int, size: int, port: int, data: Path, home: Path, group: int) -> None:
    take_place(rank, size, port)
    real, given = muon.orthogonalize, []

    def noted(stack, **more):
        given.append(tuple(stack.shape))
        return real(stack, **more)

    muon.orthogonalize = noted
    bare_losses(divided(small(steps=2), "fsdp", group), data, 2)
    (home / str(rank)).write_text(json.dumps(given))


@pytest.mark.slow
@pytest.mark.parametrize("group", [2, 4])
def test_each_matrix_is_orthogonalised_whole_by_one_process(tmp_path, group):
    team(4, note_matrices, tales(), tmp_path, group)
    given = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(4)]
    model = YuriiFormer(small().model)
    names = [n for g in named_groups(model) if g.kind == MATRICES for n in g.names]
    shapes = sorted(list(model.get_parameter(name).shape) for name in names)
    stacks = [stack for each in given for stack in each]
    assert sorted(s[1:] for s in stacks for _ in range(s[0])) == sorted(2 * shapes)
    work = [sum(n * r * c * min(r, c) for n, r, c in each) for each in given]
    largest = max(r * c * min(r, c) for r, c in shapes)
    assert max(work) <= sum(work) / 4 + 2 * largest


# --- memory ---

SIZES = {
    "small": {"n_layer": 4, "d_model": 384, "vocab_size": 16384},
    "medium": {"n_layer": 6, "d_model": 512, "vocab_size": 16384},
    "large": {"n_layer": 6, "d_model": 640, "vocab_size": 24576},
}


def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def measure(rank: int, size: int, port: int, data: Path, home: Path, name: str) -> None:
    """Resident memory after steps, less what is left when the model and the optimiser are gone:
    what libraries have taken for themselves is in both."""
    take_place(rank, size, port)
    bare_losses(sharded(steps=2), data, 2)  # libraries, buffers of the connections
    session.fill_vocabulary = lambda config, store: config  # more rows than the data have tokens
    here, model, module, optimizer = parts_of(sized(name), data)
    for step in range(2):
        batches = here.batches.training(step)
        train_step(module, batches, optimizer, here.processes, here.dtype, step)
    after = resident()
    del model, module, optimizer
    (home / f"{size}-{rank}").write_text(str(after - resident()))


def sized(name: str) -> TrainConfig:
    base = sharded("gd-lie-trotter", steps=2)
    return base.with_(n_head=2, context=16, sequences=4, micro_batch=1, **SIZES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_resident_memory_falls_as_planned(tmp_path, name):
    """Weights, gradients and optimiser of each process, within 5 %."""
    measured = {}
    for size in (2, 4):
        team(size, measure, tales(), tmp_path, name)
        stored = stored_bytes(sized(name), size)
        planned = stored.weights + stored.gradients + stored.optimizer
        each = [int((tmp_path / f"{size}-{rank}").read_text()) for rank in range(size)]
        measured[size] = max(each)
        assert planned == pytest.approx(max(each), rel=0.05), (size, planned, each)
    assert measured[4] < 0.6 * measured[2]


def test_every_step_is_on_record(tmp_path):
    """A run of several processes that share a model writes what one process would."""
    team(2, train_short, tales(), tmp_path / "run")
    assert [record["step"] for record in metrics(tmp_path / "run")] == [0, 1, 2, 3]


def train_short(rank: int, size: int, port: int, data: Path, out: Path) -> None:
    take_place(rank, size, port)
    config = sharded(steps=3, eval_every=3).with_(save_beside=True, save_every=1, exact=True)
    train(config, data, out)
