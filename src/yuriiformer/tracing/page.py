"""Traces for reading: plain data (``trace.json``), the page of the depth explorer, a summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from yuriiformer.display.columns import aligned
from yuriiformer.display.page import Page, for_json
from yuriiformer.files import packaged_table
from yuriiformer.methods.drawing.equations import step_labels, unicode_equations
from yuriiformer.methods.rule import Rule
from yuriiformer.model.loss import IGNORE
from yuriiformer.model.maps import kind
from yuriiformer.model.model import YuriiFormer
from yuriiformer.tracing.measures import learned_maps
from yuriiformer.tracing.recorder import Trace

KIND, VERSION = "yurii trace", 1
DIGITS = 6  # significant ones

Piece = Callable[[int], str]

HEADS = ("loss", "rank", "KL", "|X|", "|V|", "moved", "turned °")
QUANTITIES = "lens_loss lens_rank lens_kl norm_X norm_V step_length turning".split()
SCRIPTS = """depth_data.js depth_lines.js depth_tokens.js depth_lens.js depth_plane.js
    depth_curves.js depth_heads.js depth_maps.js depth_text.js depth.js""".split()

# The quantities of the learned maps that the page shows, with the ends of their scales.
MAPS: tuple[tuple[str, str | None, tuple[float, float] | None], ...] = (
    ("value_output", "attraction", (-1.0, 1.0)),
    ("query_key", "attraction", (-1.0, 1.0)),
    ("value_output", "symmetric", (0.0, 1.0)),
    ("query_key", "symmetric", (0.0, 1.0)),
    ("value_output", "norm", None),
    ("query_key", "norm", None),
    ("alignment", None, (-1.0, 1.0)),
    ("mlp_alignment", None, (-1.0, 1.0)),
)

PAGE = Page(room="tracing", body="depth.html", styles=("depth.css",), scripts=tuple(SCRIPTS))


def numbers(tensor: Tensor) -> Any:
    """Nested lists, rounded; None where a number is not finite."""
    return for_json(tensor.tolist(), DIGITS)


def text_data(name: str, trace: Trace, piece: Piece) -> dict[str, Any]:
    """One text. ``piece`` gives the text of a token."""
    targets = [None if t == IGNORE else t for t in trace.targets.tolist()]
    heads = {
        quantity: [None if value is None else value.mean(-1) for value in values]
        for quantity, values in trace.heads.items()
    }
    depths = trace.lens.effective_depth.tolist()
    return {
        "name": name,
        "tokens": trace.tokens.tolist(),
        "pieces": [piece(token) for token in trace.tokens.tolist()],
        "targets": targets,
        "target_pieces": [None if t is None else piece(t) for t in targets],
        "by_step": _known(trace.by_step),
        "heads": _known(heads),
        "by_layer": {name: numbers(value) for name, value in trace.by_layer.items()},
        "whole": {name: numbers(value) for name, value in trace.whole.items()},
        "top": _top(trace, piece),
        "path": {name: numbers(value) for name, value in trace.path.items()},
        "effective_depth": [None if math.isnan(d) else int(d) for d in depths],
        "pca": {
            kind: {
                "points": numbers(found.points),
                "explained": numbers(found.explained),
                "places": [
                    {"row": for_json(row, DIGITS), "step": step} for row, step in trace.places
                ],
            }
            for kind, found in trace.principal.items()
        },
    }


def _known(quantities: dict[str, list[Tensor | None]]) -> dict[str, Any]:
    """Those that have a meaning for some step."""
    return {
        name: [None if value is None else numbers(value) for value in values]
        for name, values in quantities.items()
        if any(value is not None for value in values)
    }


def _top(trace: Trace, piece: Piece) -> list[list[list[tuple[str, float]]]]:
    ids, shares = trace.lens.top.tolist(), numbers(trace.lens.top_probability)
    return [
        [
            [(piece(token), share) for token, share in zip(*both, strict=True) if share is not None]
            for both in zip(row, row_shares, strict=True)
        ]
        for row, row_shares in zip(ids, shares, strict=True)
    ]


def run_data(
    model: YuriiFormer, traces: Iterable[tuple[str, Trace]], piece: Piece
) -> dict[str, Any]:
    """All texts of one model, at least one, and the facts about the model. Only one
    trace is in memory at a time."""
    config, first, texts = model.config, None, []
    for name, trace in traces:
        first = first or replace(trace, by_step={}, heads={})
        texts.append(text_data(name, trace, piece))
    assert first is not None
    return {
        "rule": config.rule.to_dict(),
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "d_model": config.d_model,
        "context": config.context,
        "oracles": config.oracles,
        "streams": list(model.streams),
        "coefficients": {
            name: numbers(torch.tensor([c[name] for c in first.coefficients], dtype=torch.float64))
            for name in config.rule.coefficients
        },
        "maps": _plain(learned_maps(model)),
        "steps": [asdict(step) for step in first.steps],
        "texts": texts,
    }


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _plain(value) if isinstance(value, Mapping) else numbers(value)
        for name, value in found.items()
    }


def _maps(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For the page: quantities by layer and head, and the ends of their scales."""
    maps, found = run.get("maps", {}), []
    for name, quantity, ends in MAPS:
        values = maps.get(name, {}).get(quantity) if quantity else maps.get(name)
        if values is not None:
            term = f"{name}_{quantity}" if quantity else name
            found.append({"name": term, "layers": values, "ends": ends})
    return found


def depth_payload(
    traced: Mapping[str, Any], *, title: str, made: str, commands: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """The page's data, from the content of ``trace.json``."""
    runs = traced["runs"]
    texts = runs[0]["texts"]
    subtitle = " and ".join(
        f"{run['label']} ({run['n_layer']} layers, d = {run['d_model']})" for run in runs
    )
    many = f"{len(texts)} texts" if len(texts) > 1 else _tokens(len(texts[0]["tokens"]))
    return {
        "title": title,
        "subtitle": f"{subtitle}: {many}",
        "made": made,
        "commands": [{"what": what, "command": command} for what, command in commands],
        "reading": [{"term": term, "text": text} for term, text in reading().items()],
        "runs": [_run(run, style) for style, run in enumerate(runs)],
    }


def reading() -> dict[str, str]:
    """What each quantity is, by its name in a trace."""
    return packaged_table("tracing/reading.toml")


def _run(run: Mapping[str, Any], style: int) -> dict[str, Any]:
    rule = Rule.from_dict(run["rule"])
    labels = step_labels(rule)
    sizes = f"{run['n_layer']} layers, {run['n_head']} heads, d = {run['d_model']}"
    facts = [
        ("rule", f"{rule.name}: {rule.label}"),
        ("model", f"{sizes}, context {run['context']}, oracles {run['oracles']}"),
        ("run", run["folder"]),
        *([("checkpoint", _checkpoint(run))] if "checkpoint" in run else []),
        ("weights' SHA-256", run["sha256"]),
    ]
    return {
        "label": run["label"],
        "style": style,
        "rule": rule.label,
        "equations": unicode_equations(rule),
        "facts": facts,
        "n_layer": run["n_layer"],
        "streams": run["streams"],
        "coefficients": run["coefficients"],
        "maps": _maps(run),
        "steps": [
            {key: step[key] for key in ("layer", "name", "kind")} | {"label": labels[step["index"]]}
            for step in run["steps"]
        ],
        "texts": [_text(text, labels) for text in run["texts"]],
    }


def _text(text: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    def placed(pca: Mapping[str, Any]) -> dict[str, Any]:
        places = [
            {"row": each["row"], "label": "start" if each["step"] < 0 else labels[each["step"]]}
            for each in pca["places"]
        ]
        return {**pca, "places": places}

    return {**text, "pca": {kind: placed(pca) for kind, pca in text["pca"].items()}}


def _checkpoint(run: Mapping[str, Any]) -> str:
    """The checkpoint of a run; a model without a run has none."""
    return f"{run['checkpoint']}, step {run['step']:,}"


def trace_text(run: Mapping[str, Any]) -> str:
    """A run in short: means over all tokens of all texts, a row per layer."""
    texts = run["texts"]
    layers = range(run["n_layer"] + 1)
    columns = [
        (head, [_mean(text["by_layer"][name][row] for text in texts) for row in layers])
        for head, name in zip(HEADS, QUANTITIES, strict=True)
        if name in texts[0]["by_layer"]
    ]
    rows = [("blocks", *(head for head, _ in columns))]
    for row in layers:
        name = str(row) if row else "0 (embedding)"
        rows.append((name, *(_short(values[row]) for _, values in columns)))
    depths = [d for text in texts for d in text["effective_depth"] if d is not None]
    ratios = [
        value for text in texts for value in text["path"]["straightness"] if value is not None
    ]
    tokens = sum(len(text["tokens"]) for text in texts)
    settled = f"{fmean(depths):.1f}" if depths else "?"
    straight = f"; straightness of the trajectories {fmean(ratios):.2f}" if ratios else ""
    name = run["label"] + (f", checkpoint {_checkpoint(run)}" if "checkpoint" in run else "")
    depth = f"mean effective depth {settled} of {run['n_layer']} blocks{straight}"
    maps = _kinds(run.get("maps", {}))
    return "\n".join([f"{name}: {_tokens(tokens)}", "", *aligned(rows), "", depth, *maps])


def _kinds(maps: Mapping[str, Any]) -> list[str]:
    """How many heads attract and repel, by their value–output maps."""
    if "value_output" not in maps:
        return []
    scores = [score for layer in maps["value_output"]["attraction"] for score in layer]
    kinds = Counter(kind(score) for score in scores if score is not None)
    said = ", ".join(f"{kinds[word]} {word}" for word in ("attractive", "repulsive", "mixed"))
    return [f"value–output maps of {len(scores)} heads: {said}"]


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"


def _mean(rows: Iterable[Sequence[float | None]]) -> float | None:
    values = [value for row in rows for value in row if value is not None]
    return fmean(values) if values else None


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
