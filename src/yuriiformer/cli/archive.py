"""``yurii archive SUITE ARCHIVE``: a suite's results in a small folder that needs no runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from yuriiformer.cli.parsing import parse_flags
from yuriiformer.comparison.archive import read_suite, write_archive
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.errors import ConfigError, RunError


@dataclass(frozen=True)
class Flags:
    """Keep a suite's results without its runs: configurations with the rules' text, versions,
    the data's identity, every validation, training curves, coefficients, the study. JSON and
    gzip, checksummed, at most 100 kB per run. Run again, it adds the runs that have finished
    since, and new scores and samples. 'yurii report ARCHIVE' makes the report from it, and 'yurii
    train --config ARCHIVE/runs/ARM/seed-0.json.gz' repeats a run."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """The suite, and the archive to write or to add to: SUITE ARCHIVE."""


def run(arguments: list[str]) -> int:
    flags = parse_flags("yurii archive", Flags(), arguments)
    if len(flags.folders) != 2:
        raise ConfigError("two folders are needed: yurii archive SUITE ARCHIVE")
    suite, out = SuiteFolder(flags.folders[0]), flags.folders[1]
    if not suite.exists:
        raise ConfigError(f"no suite in {str(suite.path)!r}: it has no suite.json")
    try:
        written = write_archive(read_suite(suite), out)
    except OSError as error:
        raise RunError(f"the archive cannot be written to {out}: {error}") from None
    left = f", {written.left} not finished and left for later" if written.left else ""
    print(f"{out}: {written.added} runs added, {written.known} there already{left}")
    print(f"look at it with: yurii report {out}")
    return 0
