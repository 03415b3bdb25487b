"""Runs on a cluster, through submitit (SLURM, or its local executor).

A job that is preempted or reaches its time limit is put into the queue again by submitit; the run
then resumes from its last checkpoint. Interrupting the suite does not end its jobs:
the same command finds them again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yuriiformer.comparison.arms import split_words
from yuriiformer.comparison.definition import RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.running import Job, Launch, command
from yuriiformer.errors import ConfigError, RunError, one_line
from yuriiformer.files import read_json, write_json
from yuriiformer.training.stop import EXIT_CODE

JOBS = "jobs.json"  # the ids of the runs' jobs, by run
PORTS = range(29_500, 31_500)  # where nodes of a job meet: one by the job's number
# torchrun's own store outlives processes that are started again, and would give them the addresses
# of the dead.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True)
class Cluster:
    """What a job asks the cluster for."""

    kind: str = "auto"
    """auto (slurm if installed), slurm, or local: processes on this machine, to try it out."""
    partition: str | None = None
    """SLURM partition."""
    minutes: int = 24 * 60
    """Time limit of a job; one that reaches it is queued again and resumes."""
    nodes: int = 1
    """Nodes of a job, each with --processes processes of the run."""
    gpus: int = 0
    """GPUs of a job, on each node."""
    cpus: int = 1
    """Cores of a job, on each node."""
    memory_gb: float | None = None
    """Memory of a job, on each node."""
    extra: tuple[str, ...] = ()
    """Further SLURM parameters, KEY=VALUE."""


class TrainTask:
    """What submitit pickles and calls, once on each node: one run, or its processes there."""

    def __init__(self, words: Sequence[str], log: Path, nodes: int = 1) -> None:
        self.words, self.log, self.nodes = list(words), log, nodes

    def __call__(self) -> int:
        words, environment = self.words, dict(os.environ)
        if self.nodes > 1:
            words, environment = self._joined(), {**environment, **OWN_STORE}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as file:
            done = subprocess.run(words, stdout=file, stderr=file, env=environment, check=False)
            return done.returncode

    def _joined(self) -> list[str]:
        """torchrun's words, with the place where the nodes of this job meet: on the first one."""
        import submitit  # noqa: PLC0415

        here = submitit.JobEnvironment()
        port = PORTS.start + int("".join(filter(str.isdecimal, here.job_id)) or 0) % len(PORTS)
        meeting = {"id": here.job_id, "endpoint": f"{here.hostnames[0]}:{port}", "backend": "c10d"}
        flags = [f"--rdzv-{name}={value}" for name, value in meeting.items()]
        at = self.words.index("--standalone")
        return [*self.words[:at], f"--nnodes={self.nodes}", *flags, *self.words[at + 1 :]]

    def checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Called before the job is taken away: the same again, which resumes."""
        import submitit  # noqa: PLC0415

        return submitit.helpers.DelayedSubmission(self)


class ClusterJob:
    """A job in the queue, or running."""

    def __init__(self, job: Any) -> None:
        self.job = job
        self.left = False

    def poll(self) -> int | None:
        if self.left:
            return EXIT_CODE
        if not self.job.done():
            return None
        try:
            return max(int(code) for code in self.job.results())  # of its nodes
        except Exception:  # the reason is in the run's log
            return 1

    def stop(self) -> None:
        """Only stop waiting: the job stays in the cluster's queue."""
        self.left = True


def cluster(
    suite: SuiteFolder, data: Path, wanted: Cluster, processes: int = 1
) -> tuple[Launch, str]:
    """A function that submits runs (unless an earlier job of the run is still there), and the kind
    of cluster: slurm or local."""
    try:
        import submitit  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ConfigError("--executor submitit needs its package: pip install submitit") from None
    executor = _executor(submitit, suite.path / "jobs", wanted)

    def launch(run: RunSpec, slot: int) -> Job:
        earlier = _earlier(suite, run, submitit) if executor.cluster == "slurm" else None
        if earlier is not None:
            return ClusterJob(earlier)
        words = command(run, data.resolve(), processes, nodes=wanted.nodes)
        task = TrainTask(words, run.log.resolve(), wanted.nodes)
        try:
            job = executor.submit(task)
        except Exception as error:  # submitit's and subprocess's own, of many kinds
            raise RunError(f"the cluster accepts no job: {one_line(error)}") from None
        jobs = suite.path / JOBS
        write_json(jobs, {**read_json(jobs), run.name: str(job.job_id)})
        return ClusterJob(job)

    return launch, str(executor.cluster)


def _executor(submitit: Any, folder: Path, wanted: Cluster) -> Any:
    kind = None if wanted.kind == "auto" else wanted.kind
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=kind)
        extra = split_words("cluster.extra", wanted.extra, "KEY")
        options: dict[str, Any] = {
            "name": "yurii",
            "timeout_min": wanted.minutes,
            **_places(wanted.nodes, executor.cluster),
            "gpus_per_node": wanted.gpus,
            "cpus_per_task": wanted.cpus,
            "mem_gb": wanted.memory_gb,
            "slurm_partition": wanted.partition,
            "slurm_additional_parameters": extra or None,
        }
        executor.update_parameters(**{key: v for key, v in options.items() if v is not None})
    except (ValueError, RuntimeError, NameError, AssertionError) as error:
        raise ConfigError(f"--cluster: {one_line(error)}") from None
    return executor


def _places(nodes: int, kind: str) -> dict[str, int]:
    """One task on each node. On this machine, which is but one node, as many tasks."""
    if kind == "slurm":
        return {"nodes": nodes, "tasks_per_node": 1}
    return {"nodes": 1, "tasks_per_node": nodes}


def _earlier(suite: SuiteFolder, run: RunSpec, submitit: Any) -> Any:
    """The run's job that is still in the queue or running."""
    known = read_json(suite.path / JOBS).get(run.name)
    if known is None:
        return None
    job = submitit.SlurmJob(folder=suite.path / "jobs", job_id=known)
    return None if job.done() else job
