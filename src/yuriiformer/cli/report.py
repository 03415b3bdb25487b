"""``yurii report FOLDER...``: tables, figures, samples and a page from runs and suites."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from yuriiformer.cli.parsing import command_here, made_now, parse_flags
from yuriiformer.comparison.archive import is_archive
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.outcomes import Comparison, only_arms, same_data
from yuriiformer.display.page import write_page
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.files import claim_folder, read_json, write_text
from yuriiformer.report.downstream import downstream_latex, downstream_table
from yuriiformer.report.headline import claims_table, headline, hypothesis_table, verdict_lines
from yuriiformer.report.payload import PAGE, Extras, payload
from yuriiformer.report.results import result_table
from yuriiformer.report.scaling import scaling_markdown, scaling_tables
from yuriiformer.report.tables import csv_text, json_text, markdown, terminal_table
from yuriiformer.report.tables_latex import latex, latex_document, latex_sizes
from yuriiformer.runs.folder import RunFolder

Format = Literal["png", "svg", "pdf"]


@dataclass(frozen=True)
class Flags:
    """Compare runs: a self-contained HTML page with plots, and tables (Markdown, LaTeX, CSV, JSON);
    of a study, a verdict on each hypothesis; with --figures the plots as files. Works on unfinished
    runs (run it again for newer results) and on archives ('yurii archive'), which need no runs."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Suites, archives, runs, or folders that hold some."""
    out: Path | None = None
    """Folder for the report; 'report' in the first folder if not given."""
    baseline: str | None = None
    """The arm that others are compared with: its label or its rule."""
    title: str | None = None
    """Title of the page; the study's if not given."""
    samples: bool = True
    """Generate text with each arm's first run, for the same prompts."""
    prompt: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Prompt for the samples, may be given several times; the first words of validation documents
    if not given."""
    max_new_tokens: int = 120
    """Longest sample."""
    temperature: float = 0.8
    """Temperature of the samples; 0 is greedy."""
    seed: int = 0
    """Seed of the samples."""
    figures: bool = False
    """Also draw the figures as files, for papers and slides; the page shows them without."""
    formats: tuple[Format, ...] = ()
    """Draw the figures in these formats; png if --figures or --paper is given alone."""
    paper: bool = False
    """Also write the paper's tables, figures and claims from these runs, each in its own layout and
    under its own name, to 'paper' in the report (docs/reproducing.md). The folders may then hold
    runs on different data."""
    arms: tuple[str, ...] = ()
    """What figures draw: arms by label or rule; all, or the paper's methods, if not given."""
    smooth: float = 0.0
    """With --paper: the width in steps of a Gaussian that smooths Figure 5; the paper states
    none."""


def run(arguments: list[str]) -> int:
    flags = parse_flags("yurii report", Flags(), arguments)
    if not flags.folders:
        raise ConfigError("a folder is needed: a suite, an archive, a run, or one that holds some")
    if not 0 <= flags.smooth < 1e9:
        raise ConfigError(f"--smooth must be a number of steps from 0 on, not {flags.smooth:g}")
    if flags.smooth and not flags.paper:
        raise ConfigError("--smooth is for a figure of the paper: give --paper too")
    comparisons = collect(flags.folders, flags.baseline, apart=flags.paper)
    drawn = only_arms(comparisons, flags.arms)
    out = flags.out or flags.folders[0] / "report"
    claim_folder(out, _is_report, "a report")
    try:
        out.mkdir(parents=True, exist_ok=True)
        samples = _samples(flags, comparisons) if flags.samples else {}
        studies = [each.study.title for each in comparisons if each.study is not None]
        title = flags.title or (studies[0] if len(studies) == 1 else "YuriiFormer report")
        extras = Extras(title, made_now(), samples, _commands(flags, arguments))
        _tables(comparisons, out)
        write_page(PAGE, payload(comparisons, extras), out / "report.html")
    except OSError as error:
        raise RunError(f"the report cannot be written to {out}: {error}") from None
    _print(comparisons, samples, out)
    formats = flags.formats or ("png",)
    if flags.figures or flags.formats:
        _figures(drawn, out / "figures", formats)
    if flags.paper:
        _paper(flags, comparisons, out / "paper", formats)
    return 0


def _figures(comparisons: Sequence[Comparison], folder: Path, formats: Sequence[str]) -> None:
    from yuriiformer.report.figures import write_figures

    try:
        write_figures(comparisons, folder, formats)
    except OSError as error:
        raise RunError(f"the figures cannot be written to {folder}: {error}") from None
    print(f"figures in {folder}", flush=True)


def _paper(
    flags: Flags, comparisons: Sequence[Comparison], folder: Path, formats: Sequence[str]
) -> None:
    from yuriiformer.report.paper_report import write_paper

    try:
        lines = write_paper(comparisons, folder, formats, flags.arms, flags.smooth)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error}") from None
    print("\n".join(lines), flush=True)


def _is_report(folder: Path) -> bool:
    """Whether a folder holds an earlier report."""
    parts = {"tables", "figures", "paper", "report.html", "report.html.part"}
    known = read_json(folder / "tables" / "results.json").get("comparisons")
    return isinstance(known, list) and all(path.name in parts for path in folder.iterdir())


def _samples(flags: Flags, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Samples of every arm's first run, by its folder."""
    from yuriiformer.comparison.samples import SampleSettings, samples_of, shown

    sampling = SampleSettings(
        flags.prompt,
        max_new_tokens=flags.max_new_tokens,
        temperature=flags.temperature,
        seed=flags.seed,
    )
    suites = [SuiteFolder(folder) for folder in flags.folders]
    data = [Path(suite.read()["data"]["folder"]) for suite in suites if suite.exists]
    found = {}
    arms = [arm for each in comparisons for arm in each.arms]
    for number, arm in enumerate(arms, 1):
        if len(arms) > 3 and sys.stderr.isatty():
            print(f"\rsamples {number}/{len(arms)} ", end="", file=sys.stderr, flush=True)
        run = arm.first
        if run.archived:  # its model is not archived, only its samples
            found[str(run.folder)] = shown(run.samples) if run.samples else ([], "none archived")
        else:
            found[str(run.folder)] = samples_of(RunFolder(run.folder), sampling, data)
    return found


def _commands(flags: Flags, arguments: Sequence[str]) -> list[tuple[str, str]]:
    commands = []
    for folder in flags.folders:
        suite = SuiteFolder(folder)
        if suite.exists:
            commands += [("the runs", text) for text in suite.read().get("commands", [])]
        elif is_archive(folder):
            words = "yurii suite --study STUDY.toml --data DATA --out SUITE"
            commands.append(("the runs, from the study's file", words))
    return [*commands, ("this report", command_here(["yurii", "report", *arguments]))]


def _tables(comparisons: Sequence[Comparison], out: Path) -> None:
    folder = out / "tables"
    folder.mkdir(exist_ok=True)
    write_text(folder / "results.json", json_text(comparisons))  # first: it marks a report
    tables = [latex(each) for each in comparisons]
    for each in comparisons:
        stem = each.name or "results"
        write_text(folder / f"{stem}.md", markdown(result_table(each)))
        write_text(folder / f"{stem}.csv", csv_text(each))
        more = {
            "downstream": downstream_table(each),
            "hypotheses": hypothesis_table(each),
            "claims": claims_table(each),
        }
        for name, table in more.items():
            if table is not None:
                write_text(folder / f"{stem}-{name}.md", markdown(table))
        if each.scaling is not None:
            write_text(folder / f"{stem}-scaling.md", scaling_markdown(each))
        tables += [downstream_latex(more["downstream"])] if more["downstream"] else []
    if len(comparisons) > 1 and same_data(comparisons):
        tables.append(latex_sizes(comparisons))
    write_text(folder / "results.tex", latex_document(tables))


def _print(comparisons: Sequence[Comparison], samples: dict[str, Any], out: Path) -> None:
    width = shutil.get_terminal_size((120, 24)).columns
    for each in comparisons:
        if each.name:
            print(f"{each.name}\n")
        print("\n".join(headline(each)) + "\n")
        print(terminal_table(result_table(each), width))
        for verdicts in filter(None, (each.verdicts, each.claims)):
            print("\n".join(verdict_lines(verdicts)) + "\n")
        for table in (downstream_table(each), *scaling_tables(each).values()):
            if table is not None:
                print(terminal_table(table))
        for remark in each.remarks:
            print(f"note: {remark}")
    for arm in [arm for each in comparisons for arm in each.arms]:
        found, note = samples.get(str(arm.first.folder), ([], ""))
        if found:
            text = " ".join((found[0]["prompt"] + found[0]["text"]).split())
            print(f"\n{arm.label} ({note}):\n  {text[:400]}{'…' * (len(text) > 400)}")
        elif note and not arm.first.archived:  # the page says so of an archive
            print(f"\n{arm.label}: {note}")
    print(f"\ntables in {out / 'tables'}")
    print(f"open {(out / 'report.html').resolve()}", flush=True)
