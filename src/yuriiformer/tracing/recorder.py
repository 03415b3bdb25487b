"""One text through a model, step by step: what every stream and oracle does.

The model runs as usual, and the interpreter calls an observer after each step of each block. All
quantities are computed from copies, so no bit of the result changes. Rows of "by layer" count
blocks: 0 is before the first block, n_layer is after the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from yuriiformer.errors import InputError
from yuriiformer.methods.interpreter import Observer
from yuriiformer.methods.passes import Query, Step
from yuriiformer.model.block import Block
from yuriiformer.model.context import Context
from yuriiformer.model.energies import (
    antiderivative,
    log_interaction_energy,
    log_partition,
    potential_energy,
)
from yuriiformer.model.loss import IGNORE
from yuriiformer.model.model import YuriiFormer, check_tokens
from yuriiformer.tracing.measures import (
    Lens,
    Principal,
    angle,
    cosine,
    logit_lens,
    normed,
    principal,
    travel,
)

BY_STEP = """norm argument_norm cosine_before cosine_velocity cosine_state length turning entropy
    log_partition potential""".split()


@dataclass(frozen=True)
class TracedStep:
    """A step that a block took. ``index`` is its place among the rule's steps, ``call`` counts an
    oracle's calls in the block."""

    layer: int
    index: int
    name: str
    kind: str  # attn, mlp or assign
    call: int = 0


@dataclass(frozen=True)
class Trace:
    """The trace of one text of T tokens. A quantity that has no meaning for a step is None.

    Args:
        by_step: for each quantity one entry per step: (token,), or None.
        heads: the same, before the mean over attention's heads: (head, token).
        by_layer: for each quantity (n_layer + 1, token); NaN where there is none.
        whole: for each energy of the whole text (n_layer + 1,).
        path: length of each token's trajectory, distance of its ends, and their ratio: (token,).
        places: where X was recorded: (row, index of the step that made it); a row of 1.5 is after
            half of the updates of X in layer 1.
        principal: trajectories of X, as it is (``raw``) and as the final norm sees it
            (``directions``), along three principal components.
    """

    tokens: Tensor
    targets: Tensor
    steps: tuple[TracedStep, ...]
    by_step: dict[str, list[Tensor | None]]
    heads: dict[str, list[Tensor | None]]
    by_layer: dict[str, Tensor]
    whole: dict[str, Tensor]
    lens: Lens
    path: dict[str, Tensor]
    places: tuple[tuple[float, int], ...]
    principal: dict[str, Principal]
    coefficients: tuple[dict[str, float], ...]
    logits: Tensor


@torch.no_grad()
def trace(model: YuriiFormer, tokens: Tensor, targets: Tensor | None = None, top: int = 5) -> Trace:
    """Trace ``tokens`` (token,). ``targets`` are the tokens that truly follow each; if not given,
    the text's own next ones, the last having none (-100)."""
    if tokens.ndim != 1 or not len(tokens):
        raise InputError(f"a trace is of one text, (token,), not of shape {tuple(tokens.shape)}")
    if targets is None:
        targets = torch.cat((tokens[1:], tokens.new_full((1,), IGNORE)))
    checked, true = check_tokens(tokens[None], targets[None], model.config)
    assert true is not None
    tokens, targets = checked[0], true[0]
    recorder = Recorder(model, len(tokens))
    hidden = model.hidden(checked, watch=recorder.watch)
    logits = torch.nn.functional.linear(hidden, model.token_table)[0]
    return _finish(model, tokens, targets, recorder, logits, top)


@dataclass
class Recorder:
    """Records the steps of a batch of one in float64 and on the CPU, so that the measurements do
    not depend on the device of the model."""

    model: YuriiFormer
    length: int
    steps: list[TracedStep] = field(default_factory=list)
    by_step: dict[str, list[Tensor | None]] = field(
        default_factory=lambda: {k: [] for k in BY_STEP}
    )
    heads: list[Tensor | None] = field(default_factory=list)
    streams: list[dict[str, Tensor]] = field(default_factory=list)  # before each block, at the end
    trajectories: list[Tensor] = field(default_factory=list)  # X at its start, after updates
    places: list[tuple[int, int]] = field(default_factory=list)  # layer and step of each of those
    moved: Tensor | None = None  # X's last displacement

    def watch(self, layer: int, streams: dict[str, Tensor]) -> Observer:
        """The observer of a block."""
        block = self.model.blocks[layer]
        assert isinstance(block, Block)
        now = {name: _exact(value) for name, value in streams.items()}
        if layer == 0:
            self.streams.append(dict(now))
            self.trajectories.append(now["X"])
            self.places.append((-1, -1))
        index = {id(step): i for i, step in enumerate(self.model.config.rule.steps)}
        last, whole = block.program.steps[-1], _written_out(self.model, block)

        def observe(step: Step, value: Tensor, argument: Tensor | None) -> None:
            place = index[id(step)]
            found = (
                self._query(block, step, value, argument, now)
                if isinstance(step, Query) and argument is not None
                else self._assign(layer, place, step.target, value, now)
            )
            kind = step.oracle if isinstance(step, Query) else "assign"
            call = step.call if isinstance(step, Query) else 0
            self.steps.append(TracedStep(layer, place, step.target, kind, call))
            self.heads.append(found.pop("heads", None))
            for name in BY_STEP:
                self.by_step[name].append(found.get(name))
            if step is last:  # between blocks a stream keeps its precision
                dtype = streams["X"].dtype
                self.streams.append({name: now[name].to(dtype).double() for name in whole})
                self.trajectories[-1] = self.streams[-1]["X"]

        return observe

    def _assign(
        self, layer: int, place: int, target: str, value: Tensor, now: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        if value.ndim < 3:  # a local made of coefficients alone
            return {}
        value = _exact(value)
        found = {"norm": value.norm(dim=-1)}
        before = now.get(target)
        if before is not None and target in self.model.streams:
            found["cosine_before"] = cosine(before, value)
        if target == "X":
            step = value - now["X"]
            found["length"] = step.norm(dim=-1)
            if self.moved is not None:
                found["turning"] = angle(self.moved, step)
            self.moved = step
            self.trajectories.append(value)
            self.places.append((layer, place))
        now[target] = value
        return found

    def _query(
        self, block: Block, step: Query, answer: Tensor, argument: Tensor, now: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        value = _exact(answer)
        found = {
            "norm": value.norm(dim=-1),
            "argument_norm": _exact(argument).norm(dim=-1),
            "cosine_state": cosine(now["X"], value),
        }
        if "V" in now and "V" in self.model.streams:
            found["cosine_velocity"] = cosine(now["V"], value)
        now[step.target] = value
        oracle = getattr(block, step.oracle)
        context = Context(torch.arange(self.length, device=answer.device), step.call)
        if hasattr(oracle, "scores"):
            found |= attention_quantities(_exact(oracle.scores(argument, context)))
        if hasattr(oracle, "preactivations"):
            inside = _exact(oracle.preactivations(argument))
            found["potential"] = antiderivative(inside, oracle.activation).sum(-1)
        return found


def _exact(value: Tensor) -> Tensor:
    return value.detach()[0].cpu().double()


def _written_out(model: YuriiFormer, block: Block) -> list[str]:
    """The streams whose value after this block is computed: the last blocks skip steps that cannot
    reach the logits."""
    taken = {id(step) for step in block.program.steps}
    skipped = {step.target for step in model.config.rule.steps if id(step) not in taken}
    return [name for name in model.streams if name not in skipped]


def attention_quantities(scores: Tensor) -> dict[str, Tensor]:
    """From scores (head, token, key): the entropy of a token's weights and the log-partition with
    its keys held fixed, each the mean over heads; ``heads`` holds the entropies themselves."""
    log_z = scores.logsumexp(-1)
    weights = scores.softmax(-1)
    # log z - sum_j a_j s_j; where attention is masked the weight is 0 and the score infinite
    entropy = log_z - (weights * scores.masked_fill(weights == 0, 0.0)).sum(-1)
    return {"entropy": entropy.mean(0), "log_partition": log_z.mean(0), "heads": entropy}


def _finish(
    model: YuriiFormer,
    tokens: Tensor,
    targets: Tensor,
    recorder: Recorder,
    logits: Tensor,
    top: int,
) -> Trace:
    """The quantities of whole trajectories: paths, lens, energies of the streams."""
    rows = [each["X"] for each in recorder.streams]
    lens = logit_lens(model, rows, targets, top)
    trajectories = torch.stack(recorder.trajectories)  # (place, token, d)
    layers = torch.tensor([layer for layer, _ in recorder.places])
    path, moves = travel(trajectories, layers, torch.stack(rows))
    return Trace(
        tokens=tokens,
        targets=targets,
        steps=tuple(recorder.steps),
        by_step=recorder.by_step,
        heads={"entropy": recorder.heads},
        by_layer=moves | _streams(model, recorder) | lens.by_layer(),
        whole={
            "log_energy": torch.stack([log_interaction_energy(row) for row in rows]),
            "potential_energy": torch.stack([potential_energy(row) for row in rows]),
        },
        lens=lens,
        path=path,
        places=_places(recorder.places),
        principal={
            "raw": principal(trajectories),
            "directions": principal(normed(model, trajectories).cpu().double()),
        },
        coefficients=tuple(
            {name: float(value.double().mean()) for name, value in block.coefficients().items()}
            for block in model.blocks
            if isinstance(block, Block)
        ),
        logits=logits,
    )


def _streams(model: YuriiFormer, recorder: Recorder) -> dict[str, Tensor]:
    """Norms of the streams by row, and how much the tokens point in the same direction."""
    none = torch.full((recorder.length,), torch.nan, dtype=torch.float64)
    found = {}
    for stream in model.streams:
        norms = [each[stream].norm(dim=-1) if stream in each else none for each in recorder.streams]
        found[f"norm_{stream}"] = torch.stack(norms)
    rows = [each["X"] / each["X"].norm(dim=-1, keepdim=True) for each in recorder.streams]
    many = math.log(recorder.length)
    found["interaction"] = torch.stack([log_partition(row) - many for row in rows])
    return found


def _places(places: list[tuple[int, int]]) -> tuple[tuple[float, int], ...]:
    """Layer and step of each update of X as a row that counts substeps as fractions."""
    found: list[tuple[float, int]] = []
    for number, (layer, step) in enumerate(places):
        own = [i for i, (each, _) in enumerate(places) if each == layer]
        share = (own.index(number) + 1) / len(own)
        found.append((layer + share if layer >= 0 else 0.0, step))
    return tuple(found)
