"""Payloads of the depth page, made up but of the right form."""

from __future__ import annotations

import math
import random
from typing import Any

GD = [("attn[0]", "attn", "Attnₜ(Xₜ)"), ("X", "assign", "Xₜ₊½")]
GD += [("mlp[0]", "mlp", "MLPₜ(Xₜ₊½)"), ("X", "assign", "Xₜ₊₁")]
NESTEROV = [("attn[0]", "attn", "Attnₜ(Xₜ + μₜ Vₜ)"), ("V", "assign", "Vₜ₊½")]
NESTEROV += [("X", "assign", "Xₜ₊½"), ("mlp[0]", "mlp", "MLPₜ(Xₜ₊½ + μₜ₊½ Vₜ₊½)")]
NESTEROV += [("V", "assign", "Vₜ₊₁"), ("X", "assign", "Xₜ₊₁")]
WORDS = ["Once", " upon", " a", " time", ",", " there", " was", " a", " little", " dog", ".", "\n"]
WORDS += ["He", " liked", " to", " run", " in", " the", " garden", " with", " his", " friend", "."]
ODD = [
    "<script>",
    "'\"",
    "\n",
    " ",
    "🦊",
    "",
    "\t\u202e",
    "</td>",
    "\\",
    "-",
    "\u200d",
    "ü",
    " " * 30,
]
GUESSES = [" the", " a", " dog", " big", " was", " and", ".", " to", " her", " garden"]
READING = [
    ("lens_loss", "The loss of the true token if the model ended at this layer."),
    ("effective depth", "The first row from which the likeliest token stays the final one."),
    ("norm", "The Euclidean length of a token's row of the stream."),
    ("pca", "The two directions in which the states of this text vary the most."),
    ("interaction", "An analogy: exact only with tied keys and values."),
]


def one() -> dict[str, Any]:
    """One run of a rule with a velocity, two texts."""
    texts = [("a tale", WORDS), ("its first half", WORDS[:9])]
    return _page([_run("Nesterov, Lie–Trotter", NESTEROV, texts, layers=6, style=1)])


def two() -> dict[str, Any]:
    """Two runs with the same tokens and depth; the first has no velocity."""
    texts = [("a tale", WORDS), ("its first half", WORDS[:9])]
    runs = [
        _run("Gradient descent (pre-LN)", GD, texts, layers=6, style=0),
        _run("Nesterov, Lie–Trotter", NESTEROV, texts, layers=6, style=4),
    ]
    return _page(runs)


def unlike() -> dict[str, Any]:
    """Two runs of different depth whose tokenisers cut the text differently."""
    whole = "".join(WORDS)
    bytewise = [("a tale", list(whole))]
    runs = [
        _run("Nesterov, words", NESTEROV, [("a tale", WORDS)], layers=8, style=4),
        _run("Gradient descent, characters", GD, bytewise, layers=3, style=0),
    ]
    return _page(runs)


def odd() -> dict[str, Any]:
    """Pieces that are markup, invisible or empty; numbers that are not finite; unknown names."""
    payload = _page([_run("odd </script>", GD, [("<b>odd</b>", ODD)], layers=2, style=2)])
    run = payload["runs"][0]
    text = run["texts"][0]
    text["by_layer"]["own_measure"] = [[None] * len(ODD), [1.0] * len(ODD), [2.0] * len(ODD)]
    text["by_layer"]["lens_loss"][1][3] = None
    text["by_layer"]["norm_X"] = [[None] * len(ODD) for _ in range(3)]
    text["pca"]["raw"]["points"][2][1] = [None, None, None]
    text["top"][0][0] = []
    text["top"][2][1] = [["", 0.5], ["\n", 0.25], ["<img src=x onerror=alert(1)>", 0.125]]
    run["coefficients"] = {}
    for step in run["steps"]:
        step["label"] = ""
    return payload


def single() -> dict[str, Any]:
    """A prompt of one token: no true next token, no spread."""
    payload = _page([_run("Gradient descent", GD, [("one", ["Once"])], layers=1, style=0)])
    payload["runs"][0]["texts"][0]["pca"]["raw"]["points"] = [[[0.0, 0.0, 0.0]]] * 3
    return payload | {"reading": [], "commands": []}


def large() -> dict[str, Any]:
    """As much as must stay fluent: twice 256 tokens and 24 layers."""
    texts = [("long", (WORDS * 12)[:256])]
    runs = [
        _run("Gradient descent (pre-LN)", GD, texts, layers=24, style=0, heads=16),
        _run("Nesterov, Lie–Trotter", NESTEROV, texts, layers=24, style=4, heads=16),
    ]
    return _page(runs)


def _page(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": "Through depth: tales-tiny",
        "subtitle": "Two models read the same text, layer by layer.",
        "made": "Made by yuriiformer 0.0 from made-up numbers.",
        "commands": [{"what": "Make this page:", "command": "yurii trace runs/a --prompt 'Once'"}],
        "reading": [{"term": term, "text": text} for term, text in READING],
        "runs": runs,
    }


def _run(
    label: str,
    block: list[tuple[str, str, str]],
    texts: list[tuple[str, list[str]]],
    *,
    layers: int,
    style: int,
    heads: int = 4,
) -> dict[str, Any]:
    chance = random.Random(f"{label} {layers}")
    steps = [
        {"layer": layer, "name": name, "kind": kind, "label": words}
        for layer in range(layers)
        for name, kind, words in block
    ]
    velocity = any(name == "V" for name, _, _ in block)
    names = ["mu", "beta", "gamma"] if velocity else ["gamma"]
    return {
        "label": label,
        "style": style,
        "rule": label,
        "equations": [f"{words} = …" for _, kind, words in block if kind == "assign"],
        "facts": [["layers", str(layers)], ["parameters", "1,234,567"]],
        "n_layer": layers,
        "streams": ["X", "V"] if velocity else ["X"],
        "coefficients": {n: [0.5 + 0.4 * chance.random() for _ in range(layers)] for n in names},
        "maps": [
            {
                "name": name,
                "layers": [[chance.uniform(-1, 1) for _ in range(heads)] for _ in range(layers)],
                "ends": [-1.0, 1.0],
            }
            for name in ("value_output_attraction", "alignment")
        ],
        "steps": steps,
        "texts": [_text(chance, name, pieces, steps, layers, heads) for name, pieces in texts],
    }


def _text(
    chance: random.Random,
    name: str,
    pieces: list[str],
    steps: list[dict[str, Any]],
    layers: int,
    heads: int,
) -> dict[str, Any]:
    count = len(pieces)
    tokens = [hash_of(piece) for piece in pieces]
    targets = [*pieces[1:], None]

    def grid(low: float, high: float, rows: int) -> list[list[float]]:
        return [[round(chance.uniform(low, high), 4) for _ in pieces] for _ in range(rows)]

    def of_kind(kinds: set[str], low: float, high: float) -> list[list[float] | None]:
        return [grid(low, high, 1)[0] if step["kind"] in kinds else None for step in steps]

    rows = layers + 1
    lens, top, effective = _lens(chance, targets, rows)
    more = {"norm_V": grid(0.5, 2, rows)} if any(step["name"] == "V" for step in steps) else {}
    by_layer = {
        "norm_X": grid(5, 20, rows),
        **more,
        "step_length": [[None] * count, *grid(1, 4, rows - 1)],
        "turning": [[None] * count, *grid(20, 90, rows - 1)],
        **lens,
        "lens_kl": [*grid(0.1, 6, rows - 1), [0.0] * count],
    }
    oracles = {"attn", "mlp"}
    return {
        "name": name,
        "tokens": tokens,
        "pieces": pieces,
        "targets": [*tokens[1:], None],
        "target_pieces": targets,
        "by_step": {
            "norm": of_kind({"attn", "mlp", "assign"}, 1, 9),
            "argument_norm": of_kind(oracles, 3, 12),
            "cosine_state": of_kind(oracles, -1, 1),
            "entropy": of_kind({"attn"}, 0, math.log(count + 1)),
            "potential": of_kind({"mlp"}, -20, 0),
        },
        "heads": {
            "entropy": [
                [chance.uniform(0, 2) for _ in range(heads)] if step["kind"] == "attn" else None
                for step in steps
            ]
        },
        "by_layer": by_layer,
        "whole": {"log_energy": [10 - 0.4 * row + chance.random() for row in range(rows)]},
        "top": top,
        "path": {
            key: grid(low, high, 1)[0]
            for key, low, high in [("length", 9, 30), ("net", 3, 9), ("straightness", 0.1, 0.9)]
        },
        "effective_depth": effective,
        "pca": {kind: _pca(chance, count, steps, layers) for kind in ("raw", "directions")},
    }


def selected(page: Any, run: int = 0) -> list[int]:
    """The tokens chosen in an open page."""
    found: list[int] = page.evaluate(f"depth.data.selection({run})")
    return found


def spelled(piece: str | None) -> str:
    """A piece as the page shows it."""
    marks = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})
    return "–" if piece is None else piece.translate(marks)


def hash_of(piece: str) -> int:
    """A token's number: the same for the same piece."""
    return sum(ord(sign) * pow(31, place, 50_000) for place, sign in enumerate(piece)) % 50_000


def _lens(
    chance: random.Random, targets: list[str | None], rows: int
) -> tuple[dict[str, list[list[Any]]], list[list[list[list[Any]]]], list[int]]:
    """Losses that fall, ranks that agree with the likeliest tokens, depths where these settle."""
    columns = [_column(chance, target, rows) for target in targets]

    def table(place: int) -> list[list[Any]]:
        return [[column[place][row] for column in columns] for row in range(rows)]

    names = ("lens_loss", "lens_probability", "lens_rank")
    return {name: table(i) for i, name in enumerate(names)}, table(3), [c[4] for c in columns]


def _column(chance: random.Random, target: str | None, rows: int) -> tuple[Any, ...]:
    """Loss, probability, rank and likeliest tokens of one token by row, and its depth."""
    depth, last = chance.randrange(rows), chance.uniform(0.05, 5)
    losses = [round(last + (9 - last) * math.exp(-3 * row / rows), 4) for row in range(rows)]
    wrong = chance.sample([guess for guess in GUESSES if guess != target], 6)
    knows = target is not None and chance.random() < 0.5
    ranks, tops = [], []
    for row, loss in enumerate(losses):
        right = knows and row >= depth
        pieces = wrong[:5] if row >= depth else [wrong[5], *wrong[:4]]
        rank = 1 if right else 2 + round(0.2 * math.exp(loss))
        if target is not None and rank <= len(pieces):
            pieces = [*pieces[: rank - 1], target, *pieces[rank - 1 : -1]]
        share = math.exp(-loss) if right else 0.1 + 0.4 * row / rows
        tops.append([[piece, share / 2**place] for place, piece in enumerate(pieces)])
        ranks.append(rank)
    if target is None:
        return [None] * rows, [None] * rows, [None] * rows, tops, depth
    return losses, [math.exp(-loss) for loss in losses], ranks, tops, depth


def _pca(
    chance: random.Random, count: int, steps: list[dict[str, Any]], layers: int
) -> dict[str, Any]:
    """Ways that begin together and part; two places a layer."""
    places = [{"row": 0.0, "label": "start"}]
    for layer in range(layers):
        places += [
            {"row": layer + 0.5, "label": steps[0]["label"]},
            {"row": layer + 1.0, "label": "Xₜ₊₁"},
        ]
    angles = [chance.uniform(0, 2 * math.pi) for _ in range(count)]
    points = []
    for number in range(len(places)):
        far = number / 2
        points.append(
            [
                [
                    far * math.cos(angle + 0.1 * far) + chance.gauss(0, 0.15),
                    0.6 * far * math.sin(angle + 0.1 * far) + chance.gauss(0, 0.15),
                    chance.gauss(0, 0.5),
                ]
                for angle in angles
            ]
        )
    return {"points": points, "explained": [0.45, 0.21, 0.083], "places": places}
