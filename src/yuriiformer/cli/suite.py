"""``yurii suite``: many rules, several seeds, the same data; resumable, in parallel."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from yuriiformer.cli import report as report_command
from yuriiformer.cli.parsing import parse_flags
from yuriiformer.comparison.archive import begin_from_archive, is_archive
from yuriiformer.comparison.arms import (
    ArmSpec,
    make_arms,
    parse_seeds,
    parse_settings,
    split_settings,
)
from yuriiformer.comparison.cluster import Cluster, cluster
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.definition import Request, RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.progress import RunProgress, SuiteDisplay, overall
from yuriiformer.comparison.running import Launch, carry_out, on_this_machine, printed
from yuriiformer.comparison.study import Study, read_study
from yuriiformer.config import Validation
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import ConfigError, YuriiError, whole_number
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import terminal_table
from yuriiformer.sizes import cores
from yuriiformer.training.presets import PRESETS, preset
from yuriiformer.training.stop import EXIT_CODE, Stopper

Words = Annotated[tuple[tuple[str, ...], ...], tyro.conf.UseAppendAction]  # --arm A B --arm C
PRESET = "tales-tiny"
FAILED = 1  # exit code of a suite in which some run failed


@dataclass(frozen=True)
class Flags:
    """Flags of ``yurii suite``."""

    out: Path | None = None
    """Folder of the suite. Given alone, it resumes the suite in it; with --seeds alone, it adds
    these seeds to all arms."""
    data: Path | None = None
    """Folder of prepared data (see 'yurii prepare')."""
    preset: str = PRESET
    """The configuration that all arms start from: tinystories-small, openwebtext-small,
    openwebtext-medium (the paper's), cpu-tinystories, tales-tiny, 1b, 7b."""
    study: Path | None = None
    """A study's TOML file: arms, settings, seeds, baseline and hypotheses (docs/comparing.md)."""
    archive: Path | None = None
    """Begin the suite from this archive (see 'yurii archive'): the runs that are finished in it are
    not run again."""
    init_from: str | None = None
    """Begin every run with the weights of this model (see 'yurii train'); {seed} in it stands for
    the run's seed. The arms' sizes must be the model's."""
    rules: Words = ()
    """Rules to compare: names, TOML files, variations such as nesterov-lie-trotter+V=zero, or the
    groups all, paper, standard (of the paper's, one attention and one MLP call), controls,
    upcycling, further."""
    arm: Words = ()
    """Arms in full: 'LABEL: rule=NAME FIELD=VALUE ...', any field of a run's configuration."""
    grid: Words = ()
    """Multiply every arm by values of a field: muon_lr=0.01,0.02."""
    set: Words = ()
    """Fields of all arms: steps=200 n_layer=4."""
    seeds: str | None = None
    """Seeds, such as 0,1,2 or 0-4 (0 if not given): the same batches and start tensors for every
    arm."""
    baseline: str | None = None
    """The arm that others are compared with; gradient descent if not given, or the first."""
    jobs: int = 1
    """Runs at a time."""
    threads: int | None = None
    """CPU threads of each run; the cores divided by --jobs if not given. Kept when a suite is
    resumed, because it can change the last digits."""
    gpus: str = ""
    """GPUs to spread the runs over, such as 0,1: each job sees one."""
    processes: int = 1
    """Processes of each run (torchrun), on each node."""
    report: bool = False
    """Write the report at the end, as 'yurii report' does."""
    print_commands: bool = False
    """Print one command per run that is not archived, for any scheduler, and run nothing."""
    executor: Literal["local", "submitit"] = "local"
    """Run here, or submit each run as a job to a cluster."""
    wait: bool = True
    """With submitit: wait until the jobs have ended. Interrupting does not end the jobs."""
    cluster: Cluster = field(default_factory=Cluster)


DESCRIPTION = (
    "Train several arms (rules, or rules with other settings) over several seeds on identical "
    "data. Interrupted at any point, the same command resumes: finished runs are kept, others "
    f"resumed. Exit codes: 0 all finished, {FAILED} some failed, {EXIT_CODE} stopped by a signal, "
    "2 the command can be fixed. 'yurii report' shows the result."
)


def run(arguments: list[str]) -> int:
    """``yurii suite ...``"""
    flags = parse_flags("yurii suite", Flags(), arguments, DESCRIPTION)
    if flags.out is None:
        raise ConfigError("--out is needed: the folder of the suite")
    suite = SuiteFolder(flags.out)
    _check(flags)
    if flags.archive is not None:
        _begin_from_archive(suite, flags.archive, flags.data)
    data, request = _asked(flags, suite)
    with suite.taken():  # so that no other process extends or runs the suite
        words = shlex.join(["yurii", "suite", *arguments])
        here = f"cd {shlex.quote(os.getcwd())} && {words}"
        runs = suite.runs() if request is None else suite.extend(request, here)
        if flags.print_commands:
            for each in (each for each in runs if not each.archived.exists()):
                print(printed(each, data, flags.processes))
            return 0
        return _carry_out(flags, suite, data, runs)


def _begin_from_archive(suite: SuiteFolder, archive: Path, data: Path | None) -> None:
    if suite.exists and not suite.from_archive:
        raise ConfigError(f"{suite.path} was begun without an archive: choose another --out")
    if not is_archive(archive):
        raise ConfigError(f"no archive in {str(archive)!r}: it has no archive.json")
    identity = _identity(_data(data))
    with suite.taken():
        if not suite.exists:
            begin_from_archive(suite, archive, identity)
    done = sum(run.archived.exists() for run in suite.runs())
    print(f"runs in the archive {archive}: {done}")


def _data(folder: Path | None) -> Path:
    if folder is None:
        raise ConfigError("--data is needed: a folder made by 'yurii prepare'")
    return folder


def _asked(flags: Flags, suite: SuiteFolder) -> tuple[Path, Request | None]:
    """The data, and the request; None means all runs that the suite has."""
    if flags.study is not None:
        return _of_study(flags, read_study(flags.study))
    if not (flags.rules or flags.arm) and suite.exists:
        for name in ("grid", "set", "threads", "baseline", "init_from"):
            if getattr(flags, name):
                raise ConfigError(f"--{name} needs --rules or --arm to apply to")
        if flags.preset != PRESET:
            raise ConfigError("--preset needs --rules or --arm to apply to")
        data = flags.data or Path(suite.read()["data"]["folder"])
        identity = _identity(data)
        suite.check_data(identity)
        if flags.seeds is None:
            return data, None
        return data, suite.request(identity, parse_seeds(flags.seeds))
    return _request(flags, suite)


def _of_study(flags: Flags, study: Study) -> tuple[Path, Request]:
    """The request of a study's file; flags must not contradict it."""
    for name in ("rules", "arm", "grid", "set", "seeds", "baseline"):
        if getattr(flags, name):
            raise ConfigError(
                f"--{name} and --study both say what is compared: write it in the file"
            )
    if flags.preset not in (PRESET, study.preset):
        raise ConfigError(f"the study's preset is {study.preset!r}: leave --preset out")
    folder = _data(flags.data)
    baseline = next((arm.slug for arm in study.arms if arm.label == study.baseline), None)
    threads = study.settings.get("threads") or _threads(flags)
    data = _identity(folder)
    _check_texts(folder, [study.settings, *(arm.settings for arm in study.arms)])
    asked = Request(study.preset, study.arms, study.seeds, data, study.settings, threads, baseline)
    return folder, replace(asked, study=study, init_from=_model(flags))


def _request(flags: Flags, suite: SuiteFolder) -> tuple[Path, Request]:
    """What the flags ask for."""
    if flags.preset not in PRESETS:
        preset(flags.preset, "")  # says which there are
    seeds = parse_seeds("0" if flags.seeds is None else flags.seeds)
    arms = make_arms(_all(flags.rules), _all(flags.arm), _all(flags.grid))
    common = parse_settings(split_settings(_all(flags.set)))
    folder = _data(flags.data)
    baseline = _baseline(flags.baseline, arms, suite)
    data = _identity(folder)
    _check_texts(folder, [common, *(arm.settings for arm in arms)])
    asked = Request(flags.preset, arms, seeds, data, common, _threads(flags), baseline)
    return folder, replace(asked, init_from=_model(flags))


def _model(flags: Flags) -> str | None:
    """The model that runs begin from: a folder by its whole path, so that it is found from
    anywhere; a name on the hub stays one."""
    given = flags.init_from
    there = given is not None and Path(given.partition("{seed}")[0] or ".").exists()
    return os.path.abspath(given) if given is not None and there else given


def _identity(data: Path) -> dict[str, Any]:
    return {**TokenStore.open(data).identity, "folder": os.path.abspath(data)}


def _check_texts(data: Path, settings: Sequence[Mapping[str, Any]]) -> None:
    """Check that the other texts which runs are evaluated on are there, before any run begins."""
    asked = [Validation(texts=each.get("texts")) for each in settings]
    for name in dict.fromkeys(name for each in asked for name in each.text_names):
        TokenStore.open(data).text_beside(name)


def _all(words: Words) -> list[str]:
    return [word for group in words for word in group]


def _baseline(wanted: str | None, arms: Sequence[ArmSpec], suite: SuiteFolder) -> str | None:
    """The folder's name of an arm, asked for now or before."""
    if wanted is None:
        return None
    entries = [arm.entry() for arm in arms] + (suite.read()["arms"] if suite.exists else [])
    for arm in entries:
        if wanted in (arm["label"], arm["slug"]):
            return str(arm["slug"])
    known = ", ".join(dict.fromkeys(arm["slug"] for arm in entries))
    raise ConfigError(f"--baseline {wanted!r} is no arm; there are {known}")


def _threads(flags: Flags) -> int | None:
    """Threads of each run; torch's own choice for machines that are not known here."""
    if flags.threads is not None or flags.print_commands:
        return flags.threads
    if flags.executor == "submitit":
        return max(1, flags.cluster.cpus // flags.processes)
    return max(1, cores() // (flags.jobs * flags.processes))


def _check(flags: Flags) -> None:
    jobs = whole_number("--jobs", flags.jobs, 1)
    processes = whole_number("--processes", flags.processes, 1)
    if whole_number("--cluster.nodes", flags.cluster.nodes, 1) > 1 and flags.executor == "local":
        raise ConfigError("--cluster.nodes is for --executor submitit")
    if not flags.wait and flags.executor != "submitit":
        raise ConfigError("--no-wait is for --executor submitit")
    here = flags.executor == "local" and not flags.print_commands
    if here and jobs * processes > cores():
        raise ConfigError(
            f"--jobs {jobs}{f' of {processes} processes' if processes > 1 else ''} is more than "
            f"this machine's {cores()} cores: the runs would only slow each other down"
        )


def _carry_out(flags: Flags, suite: SuiteFolder, data: Path, runs: list[RunSpec]) -> int:
    launch, jobs = _executor(flags, suite, data, len(runs))
    if not flags.wait:
        return _submit(launch, runs)
    display = SuiteDisplay()
    try:
        with Stopper(display.say) as stopper:
            ended = carry_out(suite, runs, launch, jobs, display, stopper)
    finally:
        display.close()
    return _end(suite, ended, report=flags.report)


def _executor(flags: Flags, suite: SuiteFolder, data: Path, runs: int) -> tuple[Launch, int]:
    """What starts runs, and how many of them at a time."""
    if flags.executor == "local":
        gpus = [gpu.strip() for gpu in flags.gpus.split(",") if gpu.strip()]
        return on_this_machine(data, gpus, flags.processes), flags.jobs
    launch, kind = cluster(suite, data, flags.cluster, flags.processes)
    return launch, runs if kind == "slurm" else flags.jobs  # SLURM has a queue of its own


def _submit(launch: Launch, runs: Sequence[RunSpec]) -> int:
    """Submit all unfinished runs, and return."""
    left = [each for each in runs if not each.finished]
    for slot, each in enumerate(left):
        launch(each, slot)
        print(f"submitted {each.name}")
    print(f"{len(left)} of {len(runs)} runs submitted; the same command shows how far they are")
    return 0


def _end(suite: SuiteFolder, runs: Sequence[RunProgress], *, report: bool) -> int:
    failed = [each for each in runs if each.state == "failed"]
    stopped = [each for each in runs if each.state == "stopped"]
    with suppress(OSError):
        for each in failed:
            print(f"failed: {each.run.name}: {each.said} (all of it: {each.run.log})")
        print(overall(runs) + (": the same command resumes" if stopped else ""))
        if not any(each.state == "finished" for each in runs):
            pass
        elif report and not stopped:
            try:
                report_command.run([str(suite.path)])
            except YuriiError as error:  # the runs themselves are fine
                print(f"no report: {error}")
        else:
            _table(suite)
            print(f"look at it with: yurii report {suite.path}", flush=True)
    return EXIT_CODE if stopped else FAILED if failed else 0


def _table(suite: SuiteFolder) -> None:
    """The results so far."""
    try:
        for comparison in collect([suite.path]):
            print(
                terminal_table(
                    result_table(comparison), shutil.get_terminal_size((120, 24)).columns
                )
            )
    except YuriiError as error:  # the runs themselves are fine
        print(f"no table: {error}")
