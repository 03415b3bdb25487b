"""``yurii trace RUN [RUN]``: what happens inside a model, one text at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from yuriiformer.cli.parsing import (
    check_folder,
    command_here,
    made_now,
    parse_flags,
    print_remarks,
    read_prompt,
)
from yuriiformer.errors import ConfigError, DataError, InputError, RunError, whole_number
from yuriiformer.files import write_text

if TYPE_CHECKING:
    from yuriiformer.runs.loading import LoadedModel
    from yuriiformer.tracing.recorder import Trace

MOST_TOP = 100
MOST_WORK = 250_000  # tokens times layers: some 50 MB of numbers


@dataclass(frozen=True)
class Flags:
    """Run a trained model on a text and record what happens, layer by layer and token by token:
    norms, cosines and trajectories of the streams, attention's entropy, energies, the
    prediction as it forms. Writes trace.json and depth.html, a page to explore it that needs no
    network. Tracing changes no bit of what the model computes."""

    models: tyro.conf.Positional[Annotated[tuple[Path, ...], tyro.conf.arg(metavar="MODEL")]] = ()
    """A run, a checkpoint, a model folder, an export, a GPT-2; or two, to be set side by side."""
    prompt: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Text to trace, may be given several times; - reads one from standard input. Sequences of the
    validation split if none is given."""
    sequences: int = 2
    """How many sequences of the validation split, where no prompt is given."""
    max_tokens: int = 128
    """Tokens of each sequence of the validation split; a prompt is traced whole."""
    out: Path | None = None
    """Folder for trace.json and depth.html; if not given, 'trace' in the first run's folder, or
    MODEL-trace beside a model without a run."""
    top: int = 5
    """How many of the likeliest next tokens to keep for each token and layer."""
    title: str = "Depth explorer"
    """Title of the page."""
    checkpoint: Literal["best", "final", "last"] | None = None
    """Which of a run's checkpoints; the best by validation loss if not given."""
    data: Path | None = None
    """Prepared data: of the runs, if they were moved; or to trace a model without a run on."""
    json: bool = False
    """Print the content of trace.json, and write nothing."""


def run(arguments: list[str]) -> int:
    flags = parse_flags("yurii trace", Flags(), arguments)
    _check(flags)

    from yuriiformer.runs.loading import open_model
    from yuriiformer.tracing.page import KIND, VERSION

    prompts = [read_prompt(prompt) or "" for prompt in flags.prompt]
    places = [flags.data] if flags.data else []
    loaded = [open_model(path, flags.checkpoint, places) for path in flags.models]
    for each in loaded:
        print_remarks(each.remarks)
    if not flags.json:
        check_folder(_out(flags, loaded[0]), "trace.json", KIND)
    if not prompts and len({_identity(each) for each in loaded}) > 1:
        raise DataError(
            "the two runs were trained on different data, so they share no validation sequences: "
            "give a --prompt"
        )
    labels = _labels(loaded)
    runs = [_traced(flags, each, name, prompts) for each, name in zip(loaded, labels, strict=True)]
    found = {"kind": KIND, "version": VERSION, "made": made_now(), "runs": runs}
    if flags.json:
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    _write(flags, _out(flags, loaded[0]), found, arguments)
    return 0


def _check(flags: Flags) -> None:
    if not 1 <= len(flags.models) <= 2:
        raise ConfigError("a model is needed, or two: yurii trace MODEL [MODEL]")
    for name in ("sequences", "max_tokens", "top"):
        whole_number(f"--{name.replace('_', '-')}", getattr(flags, name), 1)
    if flags.top > MOST_TOP:
        raise ConfigError(f"--top must be at most {MOST_TOP}, not {flags.top}")
    if flags.prompt.count("-") > 1:
        raise ConfigError("--prompt - reads all of standard input: give it once")


def _out(flags: Flags, first: LoadedModel) -> Path:
    if flags.out is not None or first.saved:
        return flags.out or first.path / "trace"
    return first.path.resolve().with_name(f"{first.path.resolve().name}-trace")


def _identity(loaded: LoadedModel) -> str:
    known = loaded.data or loaded.store.identity
    return json.dumps({key: value for key, value in known.items() if key != "folder"})


def _labels(loaded: Sequence[LoadedModel]) -> list[str]:
    """The rules' labels; if they are equal, the folders' names; if those are equal, their paths."""
    for labels in (
        [each.model.config.rule.label for each in loaded],
        [each.path.name for each in loaded],
    ):
        if len(set(labels)) == len(labels):
            return labels
    return [str(each.path) for each in loaded]


def _traced(
    flags: Flags, loaded: LoadedModel, label: str, prompts: Sequence[str]
) -> dict[str, Any]:
    from yuriiformer.tracing.page import run_data

    tokenizer = loaded.need_tokenizer()
    end = tokenizer.end_of_text

    def piece(token: int) -> str:
        if token >= loaded.model.config.real_vocab:
            return "⟨padding⟩"
        return "⟨end⟩" if token == end else tokenizer.decode([token])

    loaded.model.eval()
    return {
        "label": label,
        "folder": str(loaded.path),
        **loaded.about,
        **run_data(loaded.model, _texts(flags, loaded, prompts), piece),
    }


def _texts(
    flags: Flags, loaded: LoadedModel, prompts: Sequence[str]
) -> Iterator[tuple[str, Trace]]:
    import torch

    from yuriiformer.data.order import validation_starts
    from yuriiformer.tracing.recorder import trace

    context = loaded.model.config.context
    for number, prompt in enumerate(prompts, 1):
        tokens = torch.tensor(loaded.need_tokenizer().encode(prompt), dtype=torch.int64)
        if len(tokens) > context:
            raise InputError(
                f"prompt {number} has {len(tokens)} tokens, but the context of "
                f"{loaded.path} is {context}: give a shorter one"
            )
        name = " ".join(prompt.split())
        short = name if len(name) <= 60 else f"{name[:59]}…"
        yield short or f"prompt {number}", trace(loaded.model, tokens, top=flags.top)
    if prompts:
        return
    val, length = loaded.store.val, min(flags.max_tokens, context)
    if len(val) <= context:
        raise DataError(
            f"the validation split of {loaded.store.folder} is shorter than the context of "
            f"{context}: give a --prompt"
        )
    work = flags.sequences * length * loaded.model.config.n_layer
    if work > MOST_WORK:
        raise ConfigError(
            f"{flags.sequences:,} sequences of {length} tokens through "
            f"{loaded.model.config.n_layer} layers are too many to trace: give fewer "
            "with --sequences or --max-tokens"
        )
    for number, start in enumerate(validation_starts(len(val), context, flags.sequences)):
        window = torch.as_tensor(val[start : start + length + 1].astype("int64"))
        traced = trace(loaded.model, window[:-1], window[1:], top=flags.top)
        yield f"validation sequence {number}", traced


def _write(flags: Flags, out: Path, found: dict[str, Any], arguments: Sequence[str]) -> None:
    from yuriiformer.display.page import write_page
    from yuriiformer.tracing.page import PAGE, depth_payload, trace_text

    command = command_here(["yurii", "trace", *arguments])
    payload = depth_payload(
        found, title=flags.title, made=found["made"], commands=[("this page", command)]
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "trace.json", json.dumps(found, ensure_ascii=False, allow_nan=False))
        write_page(PAGE, payload, out / "depth.html")
    except OSError as error:
        raise RunError(f"the trace cannot be written to {out}: {error}") from None
    for each in found["runs"]:
        print(f"{trace_text(each)}\n")
    print(f"all numbers in {out / 'trace.json'}")
    print(f"open {(out / 'depth.html').resolve()}")
