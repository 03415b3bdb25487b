"""Several nodes: two agents of torchrun on this machine, each with two processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.training.runs import (
    SECONDS,
    command,
    environment,
    finish,
    losses,
    metrics,
    steps_done,
    wait_for,
    workers,
)
from tests.training.teams import free_port

STEPS = 120


def agent(words: list[str], port: int, nodes: str, log: Path) -> subprocess.Popen[bytes]:
    """One node: torchrun with two processes, meeting the others at the port."""
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "one"]
    run = ["-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "2"]
    given = [sys.executable, *run, *meeting, "--max-restarts", "3", *words[1:]]
    store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(given, stdout=file, stderr=file, env=environment() | store)


def listens(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def kill_node(process: subprocess.Popen[bytes]) -> None:
    """As if its power failed: the agent and its processes."""
    for pid in (process.pid, *workers(process.pid).values()):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # it waits up to SECONDS several times
def test_a_node_that_dies_is_replaced(tmp_path):
    """Two nodes share a model, each holding a copy between its processes. One is killed, another
    takes its place, and the run goes on from its last checkpoint to the losses of one process."""
    out, port = tmp_path / "out", free_port()
    words = command(out, "--resume", "--parallel", "fsdp", "--shard-group", "2", steps=STEPS)
    logs = [tmp_path / name for name in ("one", "two", "three")]
    with ExitStack() as stack:
        first = agent(words, port, "1:2", logs[0])
        stack.callback(end, first)
        wait_for(partial(listens, port), first)  # the first node's agent has the meeting point
        second = agent(words, port, "1:2", logs[1])
        stack.callback(end, second)
        assert wait_for(lambda: steps_done(out) >= 8, first), logs[0].read_text()
        kill_node(second)
        third = agent(words, port, "1:2", logs[2])
        stack.callback(end, third)
        assert first.wait(SECONDS) == 0, logs[0].read_text()
        third.wait(SECONDS)
    assert "resuming from step" in logs[0].read_text() + logs[2].read_text()
    records = metrics(out)
    assert [record["step"] for record in records] == list(range(STEPS + 1))
    alone = tmp_path / "alone"
    finish(command(alone, steps=STEPS))
    for found, expected in zip(losses(out), losses(alone), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
