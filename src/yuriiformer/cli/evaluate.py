"""``yurii evaluate RUN``: validation loss and downstream tasks of a trained model."""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from yuriiformer.cli.parsing import parse_flags, print_remarks
from yuriiformer.comparison.paper import is_papers, own_setting, paper_downstream, task_references
from yuriiformer.errors import ConfigError, RunError, whole_number
from yuriiformer.evaluation.local_tasks import BATCH_TOKENS, TaskSpec, parse_tasks
from yuriiformer.runs.checkpoint import BEST

if TYPE_CHECKING:
    from yuriiformer.evaluation.evaluate import Evaluator


@dataclass(frozen=True)
class Flags:
    """Measure a trained model: validation loss by the paper's protocol and exact over the
    split, perplexity, bits per byte; with --tasks also downstream tasks. An evaluation that was
    stopped resumes when it is given again."""

    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="MODEL")]]
    """A run, a checkpoint, a model folder, an export, a GPT-2; without a run, --data is needed. Of
    a suite: every finished run, except those that have all results already."""
    checkpoint: Literal["best", "final", "last"] | None = None
    """Which of a run's checkpoints; the best by validation loss if not given."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-evaluation-harness: 'paper' (HellaSwag 10- and 0-shot, ARC-Easy 25- and 0-shot),
    NAME, or NAME@N for N examples before each question."""
    tasks_data: Path | None = None
    """Folder with local files of HellaSwag and ARC-Easy; the hub is asked if not given."""
    limit: int | None = None
    """Only this many items of each task, the first ones."""
    batch_tokens: int = BATCH_TOKENS
    """Tokens of a batch of the tasks' texts: less needs less memory."""
    validation: bool = True
    """Measure the validation loss."""
    data: Path | None = None
    """Prepared data: where the run's are, if they were moved; needed with a model's folder."""
    out: Path | None = None
    """Folder for the results; 'evaluation' in the run's if not given."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    jobs: int = 1
    """For a suite: how many runs at a time, each in a process of its own."""
    gpus: str = ""
    """For a suite: GPUs to spread the runs over, such as 0,1: each job sees one."""
    json: bool = False
    """Print JSON."""


def run(arguments: list[str]) -> int:
    flags = parse_flags("yurii evaluate", Flags(tyro.MISSING), arguments)
    for name in ("limit", "batch_tokens"):
        if getattr(flags, name) is not None:
            whole_number(f"--{name.replace('_', '-')}", getattr(flags, name), 1)
    tasks = parse_tasks(flags.tasks) if flags.tasks else []
    if not tasks and not flags.validation:
        raise ConfigError("nothing to do: --no-validation without --tasks")

    from yuriiformer.comparison.folder import SuiteFolder
    from yuriiformer.evaluation.evaluate import Evaluator, check_tasks, tasks_text, validation_text
    from yuriiformer.training.stop import stop_with_parent

    check_tasks(tasks, flags.tasks_data)
    if SuiteFolder(flags.model).exists:
        return _suite(flags, tasks)
    if flags.jobs != 1 or flags.gpus:
        raise ConfigError("--jobs and --gpus are for a suite: this is one model")
    stop_with_parent()
    evaluator = Evaluator.open(
        flags.model, flags.checkpoint, data=flags.data, out=flags.out, device=flags.device
    )
    print_remarks(evaluator.loaded.remarks)
    found: dict[str, Any] = {**evaluator.about, "results": str(evaluator.out)}
    try:
        if flags.validation:
            found["validation"] = evaluator.validation(Bar)
            _say(flags, validation_text(found["validation"], judged=bool(evaluator.loaded.saved)))
        if tasks:
            bar = Bar()
            asked = flags.limit, flags.tasks_data, flags.batch_tokens
            found["tasks"] = evaluator.tasks(
                tasks, *asked, begin=lambda spec: bar.begin(str(spec)), tell=bar
            )
            others = {} if flags.limit else {"paper": _figures(evaluator), **task_references()}
            _say(flags, "\n" + tasks_text(found["tasks"], others))
    except OSError as error:
        raise RunError(f"{evaluator.out} cannot be written: {error}") from None
    if flags.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    _say(flags, f"\nresults in {evaluator.out}")
    return 0


def _suite(flags: Flags, tasks: Sequence[TaskSpec]) -> int:
    """Every finished run of a suite, and the table of all results."""
    from yuriiformer.comparison.collect import collect
    from yuriiformer.comparison.evaluating import Asked, evaluate_runs
    from yuriiformer.comparison.folder import SuiteFolder
    from yuriiformer.report.downstream import downstream_table
    from yuriiformer.report.tables import terminal_table
    from yuriiformer.training.stop import EXIT_CODE, Stopper

    if flags.out is not None:
        raise ConfigError("--out is for one model: a suite's results stand in its runs")
    jobs = whole_number("--jobs", flags.jobs, 1)
    suite = SuiteFolder(flags.model)
    gpus = tuple(gpu.strip() for gpu in flags.gpus.split(",") if gpu.strip())
    asked = Asked(
        tasks, flags.checkpoint or BEST, flags.limit, flags.validation, _passed_on(flags), gpus
    )
    with Stopper() as stopper:
        ended = evaluate_runs(suite, asked, jobs, stopper)
    [comparison, *_] = collect([suite.path])
    table = downstream_table(comparison)
    if flags.json:
        runs = [run for arm in comparison.arms for run in arm.runs]
        scores = {
            run.folder.relative_to(suite.path).as_posix(): [asdict(s) for s in run.scores.values()]
            for run in runs
        }
        print(json.dumps({"suite": str(suite.path), **ended.counts, "scores": scores}, indent=2))
    elif table is not None:
        print(terminal_table(table))
    _say(flags, f"{ended.text}; the table in full: yurii report {suite.path}")
    return EXIT_CODE if ended.stopped else 1 if ended.failed else 0


def _passed_on(flags: Flags) -> list[str]:
    """The flags that are the same for every run."""
    words = ["--tasks", *flags.tasks] if flags.tasks else []
    words += ["--tasks-data", os.path.abspath(flags.tasks_data)] if flags.tasks_data else []
    words += ["--limit", str(flags.limit)] if flags.limit else []
    words += ["--data", os.path.abspath(flags.data)] if flags.data else []
    words += [] if flags.validation else ["--no-validation"]
    return [*words, "--batch-tokens", str(flags.batch_tokens), "--device", flags.device]


def _say(flags: Flags, text: str) -> None:
    if not flags.json:
        print(text, flush=True)


def _figures(evaluator: Evaluator) -> Mapping[str, float]:
    """The paper's, if this is the best model of one of its settings, data and rules."""
    loaded = evaluator.loaded
    best = evaluator.about.get("checkpoint") == BEST
    if not loaded.saved or not best or not is_papers(loaded.rule):
        return {}
    return paper_downstream(own_setting(loaded), loaded.rule.name) or {}


class Bar:
    """How far something is, on a terminal: rewritten in place, and gone when it is done."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.stream = sys.stderr  # now: the harness's own words are kept from it later
        self.began = (0, time.monotonic())

    def begin(self, name: str) -> None:
        self.name, self.began = name, (0, 0.0)
        self._write(f"{name}: preparing the texts")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.began[1]:
            self.began = (done, now)
        first, start = self.began
        left = (now - start) * (total - done) / (done - first) if done > first else None
        rest = "" if left is None else f", {datetime.timedelta(seconds=round(left))} left"
        self._write("" if done >= total else f"{self.name}: {done:,}/{total:,}{rest}")

    def _write(self, text: str) -> None:
        if self.stream.isatty():
            print(f"\r\x1b[K{text}", end="", file=self.stream, flush=True)
