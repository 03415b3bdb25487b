"""``yurii data show FOLDER``: look at a prepared corpus."""

from __future__ import annotations

import json
from pathlib import Path

import tyro

from yuriiformer.cli.parsing import parse_command
from yuriiformer.data.show import describe_store, plot_counts, samples, store_text
from yuriiformer.data.store import TokenStore


def show(
    folder: tyro.conf.Positional[Path],
    context: int = 1024,
    sequences: int = 480,
    samples_shown: int = 3,
    verify: bool = False,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Show a prepared corpus: counts, split, tokeniser, samples, frequent tokens, steps per epoch.

    Args:
        folder: what 'yurii prepare' wrote, or a folder with nanoGPT's train.bin and val.bin.
        context: length of a sequence, for the number of blocks.
        sequences: sequences per step, for the steps of an epoch.
        samples_shown: how many documents to begin to print.
        verify: check every byte against the hashes in meta.json.
        plot: draw how often tokens occur, to a .svg, .png or .pdf file.
        as_json: print everything as JSON.
    """
    store = TokenStore.open(folder, verify=verify)
    data = describe_store(store, context=context, sequences=sequences)
    if as_json:
        print(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        shown = samples(store, samples_shown) if store.meta and samples_shown > 0 else []
        print(store_text(data, shown, context=context, sequences=sequences))
        if verify:
            print("  every byte is as it was written" if store.meta else "  nothing to verify by")
    if plot is not None:
        plot_counts(store, plot)
        if not as_json:
            print(plot)


def run(arguments: list[str]) -> None:
    parse_command("yurii data", {"show": show}, arguments)
