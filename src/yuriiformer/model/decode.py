"""One token per text through the whole model as a list of operations in C (decode.c).

With torch a token of a model of six layers takes hundreds of calls of a microsecond or more each,
and its products do not read memory as fast as the processor can. So where there is a C compiler,
the operations of a token are listed once, with the places of all numbers; each token is one call.

The list is made from the rule's segments (`methods.straight`) and the oracles' modules. Where one
is not known here (an oracle of one's own, a replaced layer, a function of a rule that is not
arithmetic) there is no list, and torch does the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from yuriiformer.methods.evaluation import LAYER_NORM_EPS
from yuriiformer.methods.passes import Segment
from yuriiformer.methods.straight import compute, straighten
from yuriiformer.model.block import Block
from yuriiformer.model.compiled import library
from yuriiformer.model.context import BlockTensors, KVCache, TensorSlot
from yuriiformer.model.oracles import MLP, Attention, GroupedAttention, SwiGLU, angles
from yuriiformer.model.products import Linear

if TYPE_CHECKING:
    from yuriiformer.model.model import YuriiFormer

CODES = "product norm gelu gelu-tanh swiglu keep rotate attend + - * /".split()  # as in decode.c
SOURCE = Path(__file__).with_name("decode.c")
FIELDS, OUT = 11, 7  # of an operation, and where its result is
ROOM = 16  # numbers beyond the end of a buffer: a vector may be written there
ROWS = 64  # texts, at most: more are left to torch, whose products are good at that
TOKENS = 32  # new tokens from which on making the list, and perhaps compiling, pays
Value = Tensor | float  # a stream is (rows, d); a constant is a number or (1,) or (d,)


class UnknownError(Exception):
    """Something that the list cannot say."""


class Operations:
    """The list, and the memory that it works in."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.list: list[list[int]] = []
        self.used: list[Tensor | None] = []  # held as long as the list
        self.busy: list[Tensor] = []  # buffers that hold what is still needed
        self.free: dict[int, list[Tensor]] = {}  # by width

    def buffer(self, width: int) -> Tensor:
        if self.free.get(width):
            found = self.free[width].pop()
        else:
            numbers = self.rows * width
            found = torch.zeros(numbers + ROOM)[:numbers].view(self.rows, width)
        self.busy.append(found)
        return found

    def release(self, needed: Iterable[Value]) -> None:
        """Use all buffers again but those of these values: they are in the processor's cache."""
        kept = {id(value) for value in needed}
        for each in self.busy:
            if id(each) not in kept:
                self.free.setdefault(each.shape[1], []).append(each)
        self.busy = [each for each in self.busy if id(each) in kept]

    def add(
        self,
        what: str,
        a: Tensor,
        b: Tensor | None = None,
        c: Tensor | None = None,
        *,
        out: Tensor,
        width: int | None = None,
        inner: int = 0,
        groups: int = 0,
        b_stride: int | None = None,
    ) -> Tensor:
        for each in (a, b, c, out):
            if each is not None and (each.dtype != torch.float32 or each.stride(-1) != 1):
                raise UnknownError
        self.used += [a, b, c, out]
        places = [0 if each is None else each.data_ptr() for each in (a, b, c, out)]
        strides = [0 if each is None or each.ndim < 2 else each.stride(0) for each in (a, b, out)]
        if b_stride is not None:
            strides[1] = b_stride
        width = out.shape[-1] if width is None else width
        self.list.append([CODES.index(what), width, inner, groups, *places, *strides])
        return out

    def product(self, layer: nn.Module, x: Tensor) -> Tensor:
        if type(layer) is not Linear:
            raise UnknownError
        return self.matrix(layer.weight, layer.bias, x)

    def matrix(self, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
        """``x @ weight.T + bias``."""
        if not weight.is_contiguous():
            raise UnknownError
        width, inner = weight.shape
        return self.add("product", x, weight, bias, out=self.buffer(width), inner=inner)

    def norm(self, norm: Any, x: Tensor) -> Tensor:
        """LayerNorm or RMSNorm; None: LayerNorm without a gain."""
        out = self.buffer(x.shape[-1])
        if norm is None:
            return self.add("norm", x, out=out, inner=1)
        if type(norm) not in (nn.LayerNorm, nn.RMSNorm) or norm.eps != LAYER_NORM_EPS:
            raise UnknownError
        centred = isinstance(norm, nn.LayerNorm)
        bias = norm.bias if centred else None
        return self.add("norm", x, norm.weight, bias, out=out, inner=centred)

    def arithmetic(self, what: str, a: Value, b: Value, over: int | None = None) -> Tensor:
        """``over``: the side that may be overwritten, if any."""
        width = next(x.shape[-1] for x in (a, b) if isinstance(x, Tensor) and x.ndim == 2)
        sides = [x.float() if isinstance(x, Tensor) else torch.tensor(x) for x in (a, b)]
        place = None if over is None or sides[over].ndim < 2 else sides[over]
        sides = [x if x.ndim == 2 else x.expand(width).contiguous() for x in sides]
        return self.add(what, *sides, out=self.buffer(width) if place is None else place)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, slot: TensorSlot, heads: int, groups: int
    ) -> Tensor:
        """Keep keys and values of the new token, then attend to all."""
        width, size = k.shape[1] // groups, slot.size
        slot.keys, slot.values = (torch.empty(self.rows, groups, size, width) for _ in range(2))
        for new, kept in ((k, slot.keys), (v, slot.values)):
            self.add("keep", new, out=kept, width=width, inner=groups, b_stride=size)
        return self.add(
            "attend",
            *(q, slot.keys, slot.values),
            out=self.buffer(heads * width),
            width=width,
            inner=heads,
            groups=groups,
            b_stride=size,
        )

    def segment(
        self, segment: Segment, values: dict[str, Value], norms: Sequence[nn.Module]
    ) -> Value | None:
        """Adds its values to those that are there; the argument of its oracle call."""
        code = straighten(segment)
        known = dict(values)
        for line in code.lines:
            given = [known[each] if isinstance(each, str) else each for each in line.arguments]
            if not any(isinstance(each, Tensor) and each.ndim == 2 for each in given):
                known[line.name] = compute(line.operation, given)
            elif line.operation in ("norm", "unit"):
                norm = norms[line.number] if line.operation == "norm" else None
                known[line.name] = self.norm(norm, given[0])  # type: ignore[arg-type]
            elif line.operation == "negate":
                known[line.name] = self.arithmetic("*", given[0], -1.0)
            elif line.operation in CODES:
                left, right = given
                known[line.name] = self.arithmetic(line.operation, left, right, line.over)
            else:
                raise UnknownError
        values.update({name: known[line] for name, line in code.outputs})
        return None if code.argument is None else known[code.argument]


def _attention(to: Operations, own: Attention, Y: Tensor, slot: TensorSlot, turn: Tensor) -> Tensor:
    q, k, v = to.product(own.qkv, to.norm(own.norm, Y)).chunk(3, dim=-1)
    return to.product(own.out, to.attend(q, k, v, slot, own.n_head, own.n_head))


def _mlp(to: Operations, own: MLP, Y: Tensor, slot: TensorSlot, turn: Tensor) -> Tensor:
    hidden = to.product(own.up, to.norm(own.norm, Y))
    return to.product(own.down, to.add(own.activation, hidden, out=hidden))


def _grouped(
    to: Operations, own: GroupedAttention, Y: Tensor, slot: TensorSlot, turn: Tensor
) -> Tensor:
    Y = to.norm(own.norm, Y)
    q = to.product(own.q, Y)
    k, v = to.product(own.kv, Y).chunk(2, dim=-1)
    for each, heads in ((q, own.n_head), (k, own.n_kv_head)):
        to.add("rotate", each, turn, out=each, width=own.d_head, inner=heads)
    return to.product(own.out, to.attend(q, k, v, slot, own.n_head, own.n_kv_head))


def _swiglu(to: Operations, own: SwiGLU, Y: Tensor, slot: TensorSlot, turn: Tensor) -> Tensor:
    Y = to.norm(own.norm, Y)
    gate, up = to.product(own.gate, Y), to.product(own.up, Y)
    return to.product(own.down, to.add("swiglu", gate, up, out=gate))


_ORACLES: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    Attention: _attention,
    MLP: _mlp,
    GroupedAttention: _grouped,
    SwiGLU: _swiglu,
}


class Decoder:
    """The list for one model, one cache and so many rows."""

    def __init__(self, model: YuriiFormer, cache: KVCache, rows: int) -> None:
        found = library(SOURCE)
        if found is None or not _is_plain(model, rows):
            raise UnknownError
        self.run, self.model, self.cache = found.run, model, cache
        self.run.restype = None
        self.run.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
        self.to = Operations(rows)
        self.turn = torch.zeros(rows, model.config.d_head)  # cosines and sines of the positions
        self.starts = {name: self.to.buffer(model.config.d_model) for name in model.streams}
        values: dict[str, Value] = dict(self.starts)
        for block, own in zip(model.blocks, cache.blocks, strict=True):
            values = self._block(block, own, values)
        hidden = self.to.norm(model.norm, _stream(values["X"]))
        table = model.token_table[: model.config.real_vocab]  # padded ids are never produced
        self.to.matrix(table, None, hidden)
        self.places = (ctypes.c_int64 * (FIELDS * len(self.to.list)))(*chain(*self.to.list))

    def _block(
        self, block: nn.Module, cache: BlockTensors, values: dict[str, Value]
    ) -> dict[str, Value]:
        if type(block) is not Block:
            raise UnknownError
        norms = [block.velocity_norms[i] for i in block.norm_of_call]
        values = {**block.coefficients(), **values}
        segments = block.program.segments
        for number, segment in enumerate(segments):
            argument = self.to.segment(segment, values, norms)
            if segment.query is not None:
                query = segment.query
                oracle = block.attn if query.oracle == "attn" else block.mlp
                slot = cache.call(query.call) if query.oracle == "attn" else None
                if type(oracle) not in _ORACLES:
                    raise UnknownError
                values[query.target] = _ORACLES[type(oracle)](
                    self.to, oracle, _stream(argument), slot, self.turn
                )
            later = {name for each in segments[number + 1 :] for name in each.inputs}
            later.update(block.program.outputs)
            self.to.release(value for name, value in values.items() if name in later)
        return {name: values[name] for name in block.program.outputs}

    def __call__(self, tokens: Tensor, positions: Tensor, pads: Tensor | None) -> Tensor:
        """The logits of the next token of each row: (rows, real vocabulary). ``tokens``: the newest
        of each row, (rows, 1)."""
        start = self.model.start_streams(tokens, positions)
        for name, place in self.starts.items():
            place.copy_(start[name].view(place.shape))
        if self.model.config.oracles == "modern":
            angle = angles(positions, self.turn.shape[1] // 2).flatten(0, -2)
            self.turn.copy_(torch.cat((angle.cos(), angle.sin()), dim=-1))
        logits = torch.empty(len(tokens), self.model.config.real_vocab)
        self.places[-FIELDS + OUT] = logits.data_ptr()
        length = self.cache.length
        padding = None if pads is None else pads.data_ptr()
        self.run(self.places, len(self.to.list), len(tokens), length, padding)
        for slot in self.cache.slots:
            slot.length = length + 1
        return logits


def _stream(value: Value | None) -> Tensor:
    if not isinstance(value, Tensor) or value.ndim != 2:
        raise UnknownError
    return value


def _is_plain(model: YuriiFormer, rows: int) -> bool:
    """Whether nothing else has a say in what the model computes."""
    return (
        rows <= ROWS
        and model.stream_dtype is None
        and not torch.is_autocast_enabled("cpu")
        and not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
        and all(
            type(each.data) is Tensor and each.device.type == "cpu" and each.dtype == torch.float32
            for each in model.parameters()
        )
    )


def decoder(model: YuriiFormer, cache: KVCache | None, rows: int) -> Decoder | None:
    """None where torch has to do the work."""
    try:
        return None if cache is None else Decoder(model, cache, rows)
    except UnknownError:
        return None
