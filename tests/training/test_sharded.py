"""A model divided among processes (FSDP2 over gloo): the same start, the same losses, a resident
memory that falls, and matrices orthogonalised whole by one owner each."""

from __future__ import annotations

import ctypes
import gc
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.fakes import Storages
from tests.training.runs import losses, metrics, small, tales
from tests.training.teams import bare_losses, bare_steps, divided, parts_of, take_place, team
from yuriiformer.config import TrainConfig
from yuriiformer.costs.run import stored_bytes
from yuriiformer.errors import ConfigError
from yuriiformer.methods.catalog import standard
from yuriiformer.model.device import FIXED, SHARE
from yuriiformer.model.files import load_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.model.shards import is_sharded, local, shard_bounds
from yuriiformer.training import muon, session, sharding
from yuriiformer.training.estimate import MemoryEstimate
from yuriiformer.training.processes import Processes
from yuriiformer.training.saving import Saver
from yuriiformer.training.session import resolve_run, train
from yuriiformer.training.state import State
from yuriiformer.training.step import train_step

CPU = torch.device("cpu")


def sharded(rule: str = "nesterov-lie-trotter", **changes) -> TrainConfig:
    return small(rule, **changes).with_(parallel="fsdp")


def begin_and_train(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: its rows of two models as they begin, then a run of one of them."""
    take_place(rank, size, port)
    for rule in ("nesterov-fixed", "hamiltonian"):
        _, model, _, _ = parts_of(sharded(rule), data)
        assert all(is_sharded(p) == (p.ndim > 1) for p in model.parameters())
        rows = {name: local(tensor).clone() for name, tensor in model.state_dict().items()}
        save_file({n: t for n, t in rows.items() if t.numel()}, home / f"{rule}-{rank}")
    train(sharded(), data, home / "run")


def test_two_processes_share_a_model(tmp_path):
    """The start is that of one process to the bit, the losses are its up to rounding, and what is
    saved is a model like any other."""
    team(2, begin_and_train, tales(), tmp_path)
    for rule in ("nesterov-fixed", "hamiltonian"):
        whole = YuriiFormer(load_config(tmp_path, rule)).state_dict()
        parts = [load_file(tmp_path / f"{rule}-{rank}") for rank in range(2)]
        for name, tensor in whole.items():
            here = [part[name] for part in parts if name in part]
            joined = torch.cat(here) if tensor.ndim > 1 else here[0]
            assert torch.equal(joined, tensor), name
    train(small(), tales(), tmp_path / "one")
    for found, expected in zip(losses(tmp_path / "run"), losses(tmp_path / "one"), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    resolved = json.loads((tmp_path / "run" / "config.json").read_text())["resolved"]
    assert resolved["parallel"] == "fsdp 1 x 2"
    final, alone = (load_model(tmp_path / n / "checkpoints" / "final") for n in ("run", "one"))
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(final.state_dict()[name], tensor, rtol=0, atol=1e-4)


def begin_and_save(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: bytes at most while a model begins and while a run is saved, bytes that
    are there anyway, and what was sent."""
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
    found = [begun.peak, begun.alive, largest, saved.peak, own, saved.sent.total()]
    (home / str(rank)).write_text(json.dumps(found))


def test_no_process_ever_has_the_whole_model(tmp_path):
    """It begins a tensor at a time (one is drawn while the one before goes). To save it, nothing is
    copied, and nothing is sent but what the processes tell each other."""
    team(3, begin_and_save, tales(), tmp_path)
    for rank in range(3):
        begun, rows, largest, saved, own, sent = json.loads((tmp_path / str(rank)).read_text())
        assert begun <= rows + 2 * largest < 1.5 * rows
        assert saved <= 1.01 * own
        assert sent < 0.01 * own


def load_config(home: Path, rule: str):
    """A model's configuration with the vocabulary of the data."""
    saved = json.loads((home / "run" / "config.json").read_text())["config"]
    vocabulary = {name: saved["model"][name] for name in ("vocab_size", "valid_vocab")}
    return small(rule).with_(**vocabulary).model


@pytest.mark.parametrize(("rows", "shards"), [(1, 4), (3, 4), (7, 3), (8, 4), (61, 7), (5, 2)])
def test_rows_are_divided_as_torch_divides_them(rows, shards):
    bounds = [shard_bounds(rows, shards, shard) for shard in range(shards)]
    chunks = torch.arange(rows).chunk(shards)
    expected = [(int(c[0]), int(c[-1]) + 1) for c in chunks] + [(rows, rows)] * shards
    assert bounds == expected[:shards]


def test_a_group_that_does_not_divide_the_processes_is_refused():
    with pytest.raises(ConfigError, match=r"--shard-group 3 does not divide .* processes \(4\)"):
        Processes(0, 4, CPU).shard(3)
    with pytest.raises(ConfigError, match="shard_group is for parallel=fsdp"):
        small().with_(parallel="ddp", shard_group=2)


def choose(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    """In a warm process: whether the model is divided, given room for so much of a whole step."""
    take_place(rank, size, port)
    config = resolve_run(small(), data).config
    whole = MemoryEstimate(config, torch.float32, size).at(config.machine.micro_batch).peak
    found = []
    for share in (1.01, 0.99):
        room = (share * whole + FIXED) / (1 - SHARE)
        sharding.device_memory = lambda device, room=room: size * room  # all processes share it
        found.append(resolve_run(small(), data).processes.sharded)
    (home / str(rank)).write_text(json.dumps(found))


def test_auto_divides_what_does_not_fit(tmp_path):
    team(2, choose, tales(), tmp_path)
    for rank in range(2):
        assert json.loads((tmp_path / str(rank)).read_text()) == [False, True]


def test_one_process_has_nothing_to_divide(tmp_path):
    said: list[str] = []
    train(sharded(steps=1), tales(), tmp_path / "run", say=said.append)
    assert said[0].startswith("note: with one process there is nothing to divide")


# --- the same losses, however the model is divided ---

PANEL = [
    (rule, oracles)
    for rule in (*standard, "gd-table", "nesterov-fixed")
    for oracles in ("paper", "modern")
]
STEPS = 50


def panel(rule: str, oracles: str) -> TrainConfig:
    """Clipping is active at every step, and so is weight decay.

    With seed 0, one of these models has a step that nearly divides by zero: if one process begins
    with weights that are a rounding apart, that step's loss differs by 1.4e-5. So it has seed 1.
    """
    base = small(rule, steps=STEPS, seed=int((rule, oracles) == ("polyak-lie-trotter", "modern")))
    return base.with_(oracles=oracles, clip=0.3, weight_decay=0.1, context=16, micro_batch=2)


def train_panel(rank: int, size: int, port: int, data: Path, home: Path, kinds: list) -> None:
    take_place(rank, size, port)
    found = {}
    for parallel, group in kinds:
        for rule, oracles in PANEL:
            config = divided(panel(rule, oracles), parallel, group)
            found[f"{parallel} {group} {rule} {oracles}"] = bare_steps(config, data, STEPS)
    if rank == 0:
        home.write_text(json.dumps(found))


@pytest.fixture(scope="module")
def alone() -> dict[str, list[tuple[float, float]]]:
    """Losses and norms of one process."""
    torch.set_num_threads(1)
    return {f"{r} {o}": bare_steps(panel(r, o), tales(), STEPS) for r, o in PANEL}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # on a machine that others use
@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        (2, [("ddp", None), ("fsdp", None)]),
        (3, [("fsdp", None)]),
        (4, [("ddp", None), ("fsdp", None), ("fsdp", 2)]),
    ],
)
def test_losses_do_not_depend_on_how_the_model_is_divided(tmp_path, alone, size, kinds):
    """Three processes do not divide the eight sequences, nor the rows of most matrices. The norms
    are compared too: losses hardly depend on the gradient's size, which both optimisers divide
    by."""
    team(size, train_panel, tales(), tmp_path / "found", kinds)
    found = json.loads((tmp_path / "found").read_text())
    assert len(found) == len(kinds) * len(PANEL)
    for key, steps in found.items():
        expected, expected_norms = zip(*alone[key.split(" ", 2)[2]], strict=True)
        values, norms = zip(*steps, strict=True)
        assert values == pytest.approx(expected, abs=1e-5), key
        assert norms == pytest.approx(expected_norms, rel=1e-3), key
        assert min(norms) > 0.3, key  # so every step was clipped
        assert expected[-1] < expected[0] - 0.5


# --- other ways of computing ---


def train_variants(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    take_place(rank, size, port)
    found = {name: bare_losses(config, data, 6) for name, config in variants("fsdp").items()}
    if rank == 0:
        home.write_text(json.dumps(found))


def variants(parallel: str) -> dict[str, TrainConfig]:
    base = small("nesterov-lie-trotter", steps=6).with_(parallel=parallel)
    low = base.with_(precision="bfloat16")
    return {
        "recompute": base.with_(recompute=True),
        "adamw": base.with_(matrices="adamw"),
        "split": base.with_(split_fused=True),
        "bfloat16": low,
        "bfloat16 recompute": low.with_(recompute=True),
    }


@pytest.mark.slow
def test_recomputing_low_precision_and_other_optimisers(tmp_path):
    """In bfloat16 the matrices travel in it: the products are those of autocast."""
    team(3, train_variants, tales(), tmp_path / "found")
    found = json.loads((tmp_path / "found").read_text())
    for name, config in variants("auto").items():
        close = 5e-3 if "bfloat16" in name else 1e-5
        assert found[name] == pytest.approx(bare_losses(config, tales(), 6), abs=close), name


def train_compiled(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    take_place(rank, size, port)
    found = {}
    for precision in ("float32", "bfloat16"):
        config = sharded().with_(precision=precision, recompute=precision == "float32")
        plain = bare_losses(config, data, 3)
        here, model, module, optimizer = parts_of(config, data)
        model.compile_blocks()
        compiled = []
        for step in range(3):
            batches = here.batches.training(step)
            done = train_step(module, batches, optimizer, here.processes, here.dtype, step)
            compiled.append(done.loss)
        found[precision] = [plain, compiled]
    if rank == 0:
        home.write_text(json.dumps(found))


@pytest.mark.slow
def test_compiled_blocks_of_a_divided_model(tmp_path):
    team(2, train_compiled, tales(), tmp_path / "found")
    found = json.loads((tmp_path / "found").read_text())
    assert found["float32"][1] == pytest.approx(found["float32"][0], abs=1e-5)
    assert found["bfloat16"][1] == pytest.approx(found["bfloat16"][0], abs=5e-3)


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
