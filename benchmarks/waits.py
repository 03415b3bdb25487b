"""What a person waits for: help, listings, reports. Seconds of the whole command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measuring import ROOT, Rounds, Row, subject, take_turns, timed

YURII = str(Path(sys.executable).with_name("yurii"))
HELP = ("--help", "train --help", "plan --help", "sample --help", "rules", "presets")
SHOW = "data show"
RULES = ("gd-lie-trotter", "polyak-lie-trotter", "nesterov-lie-trotter")


def yurii(*words: str | Path) -> None:
    command = [YURII, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-500:]}"


@subject(
    "help",
    Row(
        f"`yurii {HELP[0]}` and {len(HELP)} other helps and listings, the slowest",
        "a person's wait",
        ("slowest",),
        "≤ 1",
        "s",
    ),
)
def helps(*, quick: bool) -> Rounds:
    with tempfile.TemporaryDirectory() as folder:
        tales = Path(folder) / "tales"
        yurii("prepare", "tales", "--stories", "200", "--out", tales)
        ways = {words: lambda words=words: yurii(*words.split()) for words in HELP}
        ways[SHOW] = lambda: yurii("data", "show", tales)
        rounds = take_turns(ways, 1 if quick else 7, warm=not quick)
    return rounds | {"slowest": list(map(max, zip(*rounds.values(), strict=True)))}


def reports(folder: Path, extra: Sequence[str], rounds: int) -> Rounds:
    """Of the runs in a folder, each time into a new one."""
    seconds = []
    for number in range(rounds):
        out = folder.with_name(f"report-{number}")
        seconds.append(timed(lambda out=out: yurii("report", folder, "--out", out, *extra)))
        assert (out / "report.html").exists()
    return {"report": seconds}


@subject(
    "report-demo",
    Row("`yurii report` of the demo's nine runs", "a person's wait", ("report",), "≤ 5", "s"),
)
def demo(*, quick: bool) -> Rounds:
    """The suite of ``make demo``; with samples, which its runs keep after the first report."""
    with tempfile.TemporaryDirectory() as name:
        tales, suite = Path(name) / "tales", Path(name) / "suite"
        yurii("prepare", "tales", "--tokenizer", "bpe:2048", "--out", tales)
        flags = ["--seeds", "0" if quick else "0,1,2", "--jobs", "2", "--preset", "tales-tiny"]
        flags += ["--set", "steps=5"] if quick else []
        yurii("suite", "--data", tales, "--out", suite, *flags, "--rules", *RULES, "--report")
        return reports(suite, [], 1 if quick else 5)


@subject(
    "report-large",
    Row("`yurii report` of 85 runs of 10,000 steps", "a person's wait", ("report",), "≤ 20", "s"),
)
def large(*, quick: bool) -> Rounds:
    """The paper's 17 rules with five seeds, written as training writes them."""
    from tests.comparison.synthetic import configuration, falling, write_run
    from yuriiformer.methods.catalog import paper

    steps, seeds = (500, 1) if quick else (10_000, 5)
    with tempfile.TemporaryDirectory() as name:
        runs = Path(name) / "runs"
        for rule in paper:
            for seed in range(seeds):
                config = configuration(rule, seed=seed, steps=steps, every=100)
                write_run(runs / f"{rule}-{seed}", config, val=falling(1.1, steps), noise=0.05)
        return reports(runs, ["--no-samples"], 1 if quick else 3)
