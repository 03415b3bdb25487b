"""``yurii prepare SOURCE ...``: text in, token files out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from yuriiformer.cli.parsing import parse_command
from yuriiformer.data.paper_corpora import (
    OPENWEBTEXT,
    TINYSTORIES,
    Hub,
    beside_the_paper,
    find_revision,
)
from yuriiformer.data.partial import Progress
from yuriiformer.data.prepare import Report, Settings, prepare
from yuriiformer.data.show import tales_floor
from yuriiformer.data.sources import Files, Parts, Source, Tales, find_files, skipped_files
from yuriiformer.data.splitting import SplitBy
from yuriiformer.data.store import facts_of
from yuriiformer.errors import DataError, whole_number
from yuriiformer.sizes import cores

NAMED = 8  # skipped files

From = Annotated[
    tuple[Path, ...],
    tyro.conf.arg(name="from", metavar="PATH", help="files you downloaded, instead of the hub"),
]


@dataclass
class Common:
    """Options of every source."""

    out: Path
    """Folder to write; it must not exist, or be empty."""
    tokenizer: str = "gpt2"
    """gpt2, bytes, bpe:N (a byte-level BPE of N tokens trained on this text), or hf:PATH (a
    tokenizer.json of Hugging Face, or its folder)."""
    seed: int = 0
    """Decides which documents are validation (and, for tales, which stories are generated)."""
    workers: int = cores()
    """Processes; the result does not depend on it."""
    end_mark: Literal["after", "between"] = "after"
    """An end-of-text token after every document, or only between documents."""
    strict: bool = False
    """Stop at text that is not valid UTF-8, instead of replacing and counting it."""
    restart: bool = False
    """Discard an unfinished preparation of this folder and start again."""

    def __post_init__(self) -> None:
        whole_number("--workers", self.workers, 1)


def tinystories(
    common: tyro.conf.OmitArgPrefixes[Common],
    from_: From = (),
    val_from: tuple[Path, ...] = (),
    split: Literal["hash", "official"] = "hash",
    val_fraction: float = 0.005,
    column: str = "text",
    drop_cut_ends: bool = False,
    revision: str | None = None,
) -> None:
    """Prepare TinyStories, from the hub or from files.

    Args:
        val_from: with --split official and --from: files of the official validation split.
        split: hold out stories by hash (as the paper's counts suggest), or the official split.
        val_fraction: share of stories held out by hash.
        column: the column with the text in .jsonl and .parquet files.
        drop_cut_ends: leave out the first and last story of a .txt file cut from a larger one.
        revision: of the hub's dataset; the newest if not given.
    """
    official = split == "official"
    if val_from and not official:
        raise DataError("--val-from goes with --split official")
    if official and bool(from_) != bool(val_from):
        raise DataError("--split official with files needs both --from and --val-from")
    _check_hub_options(from_, revision, drop_cut_ends=drop_cut_ends)
    source: Source
    if from_ and official:
        train = Files(tuple(find_files(from_)), column, drop_cut_ends, "train", "tinystories")
        val = Files(tuple(find_files(val_from)), column, drop_cut_ends, "val", "tinystories")
        source = Parts((train, val))
    elif from_:
        source = Files(tuple(find_files(from_)), column, drop_cut_ends, corpus="tinystories")
    else:
        splits = ("train", "validation") if official else ("train",)
        source = Hub(TINYSTORIES, splits, find_revision(TINYSTORIES, revision), column, official)
    _prepare(source, common, val_fraction)


def openwebtext(
    common: tyro.conf.OmitArgPrefixes[Common],
    from_: From = (),
    val_fraction: float = 0.05,
    column: str = "text",
    revision: str | None = None,
) -> None:
    """Prepare OpenWebText, from the hub or from files.

    Args:
        val_fraction: share of documents held out by hash.
        column: the column with the text in .jsonl and .parquet files.
        revision: of the hub's dataset; the newest if not given.
    """
    _check_hub_options(from_, revision)
    source: Source
    if from_:
        source = Files(tuple(find_files(from_)), column, corpus="openwebtext")
    else:
        source = Hub(OPENWEBTEXT, ("train",), find_revision(OPENWEBTEXT, revision), column)
    _prepare(source, common, val_fraction)


def _check_hub_options(
    from_: tuple[Path, ...], revision: str | None, *, drop_cut_ends: bool = False
) -> None:
    """Refuse options that would be ignored."""
    if from_ and revision:
        raise DataError("--revision is the hub's: it does not go with --from")
    if drop_cut_ends and not from_:
        raise DataError("--drop-cut-ends is for files: it needs --from")


def text(
    paths: tyro.conf.Positional[tuple[Path, ...]],
    common: tyro.conf.OmitArgPrefixes[Common],
    val_fraction: float = 0.05,
    split: SplitBy = "auto",
    column: str = "text",
    drop_cut_ends: bool = False,
) -> None:
    """Prepare your own text: .txt, .jsonl, .parquet (also .gz and .zst), or folders of them.

    Args:
        paths: files and folders. A .txt file is split into documents at <|endoftext|>.
        val_fraction: share held out for validation.
        split: hold out whole documents (by hash), or the tail of each document, which one book or
            a few of them need. auto is by document, unless one side would be empty or tiny.
        column: the column with the text in .jsonl and .parquet files.
        drop_cut_ends: leave out the first and last document of a .txt file cut from a larger one.
    """
    if not paths:
        raise DataError("name at least one file or folder: yurii prepare text PATH --out FOLDER")
    source = Files(tuple(find_files(paths)), column, drop_cut_ends)
    _say_skipped(skipped_files(paths))
    _prepare(source, common, val_fraction, split)


def _say_skipped(files: list[Path]) -> None:
    if files:
        names = ", ".join(str(path) for path in files[:NAMED])
        more = f" and {len(files) - NAMED:,} more" if len(files) > NAMED else ""
        what = "1 file" if len(files) == 1 else f"{len(files):,} files"
        print(f"skipped {what} (empty, or not .txt, .jsonl or .parquet): {names}{more}")


def tales(
    common: tyro.conf.OmitArgPrefixes[Common], stories: int = 20_000, val_fraction: float = 0.05
) -> None:
    """Prepare generated children's stories: needs no network and no files.

    Args:
        stories: how many.
        val_fraction: share of stories held out by hash.
    """
    whole_number("--stories", stories, 1)
    _prepare(Tales(stories, common.seed), common, val_fraction)


def _prepare(
    source: Source, common: Common, val_fraction: float, split: SplitBy = "documents"
) -> None:
    """The other sources are many short documents: they are split by document."""
    given = (common.tokenizer, common.seed, val_fraction, common.end_mark, common.strict)
    settings = Settings(*given, split=split)
    try:
        with _reporting() as report:
            meta = prepare(
                source,
                common.out,
                settings,
                workers=common.workers,
                restart=common.restart,
                report=report,
            )
    except KeyboardInterrupt:
        print("the same command resumes it", file=sys.stderr)
        raise
    if meta["settings"].get("split") == "tail":
        print(f"validation is {meta['split_rule']}")
    for name, known in meta["splits"].items():
        print(f"{name}: {known['documents']:,} documents, {known['tokens']:,} tokens")
    for what in ("empty_documents", "invalid_utf8_documents"):
        if meta[what]:
            print(f"{what.replace('_', ' ')}: {meta[what]:,}")
    if not meta["splits"]["val"]["documents"]:
        print("note: the validation split is empty: give more text, or a larger --val-fraction")
    if said := tales_floor(meta) or beside_the_paper(facts_of(meta)):
        print(said)
    print(f"wrote {common.out}")


@contextmanager
def _reporting() -> Iterator[Report]:
    """A progress bar on a terminal, a line every few seconds elsewhere."""
    pace = _Pace()
    if not sys.stderr.isatty():
        yield pace.line
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None)

        def show(progress: Progress, done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, description=pace.rates(progress, done))

        yield show


class _Pace:
    """Speed since this command began (an earlier one may have done part of the work)."""

    def __init__(self) -> None:
        self.start = self.said = time.monotonic()
        self.before: tuple[int, int, int] | None = None

    def rates(self, progress: Progress, done: int) -> str:
        documents = progress.train.documents + progress.val.documents
        tokens = progress.train.tokens + progress.val.tokens
        if self.before is None:
            self.before = (documents, tokens, done)
        seconds = max(time.monotonic() - self.start, 1e-3)
        per_second = [(documents - self.before[0]) / seconds, (tokens - self.before[1]) / seconds]
        return (
            f"{documents:,} documents ({per_second[0]:,.0f}/s), "
            f"{tokens:,} tokens ({per_second[1]:,.0f}/s)"
        )

    def line(self, progress: Progress, done: int, total: int | None) -> None:
        text, now = self.rates(progress, done), time.monotonic()
        if now - self.said < 5:
            return
        self.said = now
        assert self.before is not None
        if total and done > self.before[2]:
            left = (total - done) * (now - self.start) / (done - self.before[2])
            text += f", {100 * done / total:.0f} %, {left:,.0f} s left"
        print(text, file=sys.stderr)


def run(arguments: list[str]) -> None:
    commands = (tinystories, openwebtext, text, tales)
    parse_command("yurii prepare", {each.__name__: each for each in commands}, arguments)
