"""Runs on several nodes: what SLURM is given, and two groups of processes on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.comparison.suites import command, run
from yuriiformer.comparison import cluster
from yuriiformer.comparison.cluster import Cluster, TrainTask
from yuriiformer.runs.metrics import read_metrics


class Place:
    """What submitit tells a task of its job."""

    job_id = "4711_3"
    hostnames = ("node7", "node8")


def test_the_nodes_of_a_job_meet_on_the_first(monkeypatch):
    import submitit

    monkeypatch.setattr(submitit, "JobEnvironment", Place)
    words = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "train"]
    joined = TrainTask(words, Path("log"), nodes=2)._joined()
    port = cluster.PORTS.start + 47113 % len(cluster.PORTS)
    assert joined[:3] == words[:3]
    assert joined[-2:] == words[-2:]
    assert joined[3:-2] == [
        "--nnodes=2",
        "--rdzv-id=4711_3",
        f"--rdzv-endpoint=node7:{port}",
        "--rdzv-backend=c10d",
    ]


def test_what_slurm_is_asked_for(tmp_path, monkeypatch):
    """The script that submitit would hand to sbatch."""
    import submitit
    from submitit.slurm import slurm

    monkeypatch.setattr(slurm.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    wanted = Cluster("slurm", partition="long", nodes=2, gpus=8, cpus=16, minutes=90)
    executor = cluster._executor(submitit, tmp_path, wanted)
    script = executor._executor._make_submission_file_text("CALL", "uid")
    for line in ("nodes=2", "ntasks-per-node=1", "gpus-per-node=8", "cpus-per-task=16", "time=90"):
        assert f"#SBATCH --{line}\n" in script, script
    assert "#SBATCH --partition=long\n" in script
    assert "srun" in script


def test_on_one_machine_tasks_stand_for_nodes():
    assert cluster._places(2, "slurm") == {"nodes": 2, "tasks_per_node": 1}
    assert cluster._places(2, "local") == {"nodes": 1, "tasks_per_node": 2}


@pytest.mark.slow
def test_two_tasks_of_the_local_executor_train_one_run(tmp_path):
    out = tmp_path / "suite"
    words = command(
        out,
        *("--executor", "submitit", "--cluster.kind", "local", "--cluster.nodes", "2"),
        *("--set", "parallel=fsdp"),
        rules=("gd-lie-trotter",),
    )
    done = run(words)
    assert done.returncode == 0, done.stdout + done.stderr
    [metrics] = out.rglob("metrics.jsonl")
    assert read_metrics(metrics)[-1]["step"] > 0
    [last] = out.glob("runs/*/*/checkpoints/final")
    assert (last / "model-2-of-2.safetensors").is_file()
