"""The model: token and position tables, blocks, final norm, tied output projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from yuriiformer.errors import InputError
from yuriiformer.methods.frugal import forget
from yuriiformer.methods.interpreter import Observer, unit
from yuriiformer.model.block import Block
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import BlockKVCache, Context
from yuriiformer.model.generate import Sampling, stream
from yuriiformer.model.loss import IGNORE, mean_cross_entropy
from yuriiformer.model.oracles import oracle_pair
from yuriiformer.model.parameters import initialize
from yuriiformer.model.shards import is_sharded
from yuriiformer.sizes import check_memory

# (layer, its streams) -> who observes its steps, if anybody
Watch = Callable[[int, dict[str, Tensor]], Observer | None]
SPAN = 2  # blocks between the streams that are kept for the backward pass; others are recomputed


class Table(nn.Embedding):
    """An embedding table whose start is drawn by the model, not here."""

    def reset_parameters(self) -> None:
        """Nothing, as in `Linear`."""


class Tables(nn.Module):
    """Where a stream starts: a vector for each token and, if learned, one for each position."""

    def __init__(self, config: ModelConfig, learned_positions: bool) -> None:
        super().__init__()
        self.tokens = Table(config.vocab_size, config.d_model)
        self.positions = Table(config.context, config.d_model) if learned_positions else None

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        start: Tensor = self.tokens(tokens)  # (batch, token, d)
        return start if self.positions is None else start + self.positions(positions)


def _check_size(config: ModelConfig) -> None:
    """Check that the largest tensors could fit, unless none are made (the meta device, fake
    tensors)."""
    probe = torch.empty(0)
    if type(probe) is Tensor and not probe.is_meta:
        numbers = (config.vocab_size + 8 * config.n_layer * config.d_model) * config.d_model
        check_memory(numbers * probe.element_size(), "the model")


class YuriiFormer(nn.Module):
    """A decoder-only language model whose blocks run an update rule.

    ``model(tokens)`` gives logits (batch, token, vocab_size); ``model(tokens, targets)`` gives the
    mean loss in nats per token, without the full logits in memory. Targets of -100 do not count.

    ``seed`` of the initial weights; None leaves them unset, for a loader to fill.
    """

    def __init__(self, config: ModelConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        rule, pair = config.rule, oracle_pair(config)
        self.streams = dict(rule.streams)
        _check_size(config)
        self.starts = nn.ModuleDict(  # starts.V_0 is where the stream V comes from
            {
                f"{stream}_0": Tables(config, pair.learned_positions)
                for stream, start in self.streams.items()
                if start in ("tables", "normalized")
            }
        )
        programs = rule.programs(config.n_layer)
        self.blocks = nn.ModuleList(
            Block(config, pair, program, layer) for layer, program in enumerate(programs)
        )
        self.norm = pair.norm(config)
        self.recompute = False  # keep only the streams between blocks for the backward pass
        self.onednn = False  # the output projection by oneDNN's products (see `use_onednn`)
        self.stream_dtype: torch.dtype | None = None  # of the streams between blocks; None: as is
        for name in self.dead_parameters():
            self.get_parameter(name).requires_grad_(False)
        if seed is not None:
            initialize(self, seed)

    @property
    def token_table(self) -> Tensor:
        """(vocab_size, d): the embedding of X, and the output projection."""
        main = self.starts["X_0"]
        assert isinstance(main, Tables)
        return main.tokens.weight

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        tokens, targets = check_tokens(tokens, targets, self.config)
        hidden = self.hidden(tokens)
        if targets is None:
            return F.linear(hidden, self.token_table)
        return mean_cross_entropy(hidden, self.token_table, targets, onednn=self.onednn)

    def hidden(
        self,
        tokens: Tensor,
        context: Context | None = None,
        caches: Sequence[BlockKVCache] | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """X after the last block and the final norm: (batch, token, d).

        ``context`` holds positions and mask, if the tokens are not simply the beginning of a text;
        ``caches``, one per block, hold earlier keys and values. ``watch`` is called with the
        streams before each block and returns the observer of its steps.
        """
        context = context or Context(torch.arange(tokens.shape[1], device=tokens.device))
        streams = self.start_streams(tokens, context.positions)
        if self.stream_dtype is not None:
            streams = {name: value.to(self.stream_dtype) for name, value in streams.items()}
        for layer, block in enumerate(self.blocks):
            observer = None if watch is None else watch(layer, streams)
            if self.recompute and torch.is_grad_enabled():
                streams = checkpoint(block, streams, context, use_reentrant=False)
                continue
            if layer % SPAN == 0:
                forget(streams)
            cache = None if caches is None else caches[layer]
            streams = block(streams, context, observer, cache)
        result: Tensor = self.norm(streams["X"].to(self.token_table.dtype))
        return result

    def generate(
        self,
        tokens: Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        end: int | None = None,
    ) -> Tensor:
        """Continue ``tokens`` (batch, token): those given, and those drawn after them.

        Temperature 0 is greedy. A row that has drawn ``end`` is padded with it. For prompts of
        unequal lengths, and for streaming, see `yuriiformer.model.generate.stream`.
        """
        if not isinstance(tokens, Tensor) or tokens.ndim != 2:
            shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise InputError(f"tokens to continue are a tensor (batch, token), not {shape}")
        sampling = Sampling(temperature, top_k, top_p, repetition_penalty)
        new = list(stream(self, tokens.tolist(), max_new_tokens, sampling, seed=seed, end=end))
        columns = [[end if token is None else token for token in column] for column in new]
        added = torch.tensor(columns, dtype=tokens.dtype, device=tokens.device)
        return torch.cat([tokens, added.reshape(len(new), len(tokens)).T], dim=1)

    def start_streams(self, tokens: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """Every stream before the first block, as the rule says it starts."""
        main = self.starts["X_0"](tokens, positions)
        streams: dict[str, Tensor] = {}
        for name, start in self.streams.items():
            if start == "zero":
                # Not zeros_like: V must require a gradient here as in later blocks, or the first
                # block would need its own compiled graph.
                streams[name] = 0.0 * main
            elif name == "X":
                streams[name] = main
            elif start == "tied":
                streams[name] = main.clone()  # an alias of X would need its own compiled graph
            else:
                streams[name] = self.starts[f"{name}_0"](tokens, positions)
            if start == "normalized":
                streams[name] = unit(streams[name])
        return streams

    def num_parameters(self, *, velocity_table: bool = False) -> int:
        """Parameters by the paper's convention: no position tables, the tied table once, and
        token tables of other streams (v0) only on request."""

        def counts(name: str) -> bool:
            if not name.startswith("starts."):
                return True
            return ".tokens." in name and (velocity_table or name.startswith("starts.X_0."))

        return sum(p.numel() for name, p in self.named_parameters() if counts(name))

    def dead_parameters(self) -> list[str]:
        """Parameters that can never reach the logits; they are frozen."""
        first = self.blocks[0]
        assert isinstance(first, Block)
        unread = [stream for stream in self.streams if stream not in first.program.inputs]
        starts = tuple(f"starts.{stream}_0." for stream in unread if stream != "X")
        return [name for name, _ in self.named_parameters() if name.startswith(starts)] + [
            f"blocks.{layer}.{name}"
            for layer, block in enumerate(self.blocks)
            if isinstance(block, Block)
            for name in block.dead_parameters()
        ]

    def compile_blocks(self, **options: Any) -> Self:
        """Compile each block in place; blocks with the same program share one graph. Of a sharded
        model, what gathers a block's weights stays outside of it."""
        for block in self.blocks:
            if any(map(is_sharded, block.parameters())):
                compiled = torch.compile(block.forward, fullgraph=True, **options)
                block.forward = compiled
            else:
                block.compile(fullgraph=True, **options)
        return self


def check_tokens(
    tokens: Tensor, targets: Tensor | None, config: ModelConfig
) -> tuple[Tensor, Tensor | None]:
    """Token ids (batch, token) and, where given, targets of the same shape, as int64."""
    tokens = _as_ids("tokens", tokens)
    if tokens.ndim != 2:
        shape = tuple(tokens.shape)
        raise InputError(f"tokens must be (batch, token), not of shape {shape}")
    if not 1 <= tokens.shape[1] <= config.context:
        raise InputError(
            f"{tokens.shape[1]} tokens do not fit: this model takes 1 to {config.context} "
            "(its context); cut the sequence, or build the model with a larger context"
        )
    _check_range("token", tokens, config.vocab_size)
    if targets is not None:
        targets = _as_ids("targets", targets)
        if targets.shape != tokens.shape:
            shapes = f"{tuple(targets.shape)}, but tokens {tuple(tokens.shape)}"
            raise InputError(f"targets have shape {shapes}: one target per token")
        _check_range("target", targets, config.vocab_size, ignored=IGNORE)
    return tokens, targets


def _as_ids(what: str, ids: object) -> Tensor:
    """Any kind of integers (token files are uint16) as int64."""
    if not isinstance(ids, Tensor):
        kind = type(ids).__name__
        raise InputError(f"{what} must be a tensor, not {kind}: use torch.as_tensor(...)")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputError(f"{what} must be whole numbers, not {ids.dtype}: use {what}.long()")
    return ids.long()


def _check_range(what: str, ids: Tensor, vocab: int, ignored: int | None = None) -> None:
    # Reading values would stall a GPU and cannot be compiled; there the kernels check. Fake tensors
    # have no values to read.
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or type(ids) is not Tensor:
        return
    wrong = (ids < 0) | (ids >= vocab)
    if ignored is not None:
        wrong &= ids != ignored
    if bool(wrong.any()):
        worst = int(ids[wrong][0])
        raise InputError(
            f"{what} id {worst} is out of range: this model's vocabulary is 0 to {vocab - 1}"
        )
