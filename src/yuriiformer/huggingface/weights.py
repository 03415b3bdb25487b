"""GPT-2's tensors, by the names that Hugging Face's and nanoGPT's models share, as ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from yuriiformer.errors import ModelFileError, one_line
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer

TABLES = {
    "wte.weight": "starts.X_0.tokens.weight",
    "wpe.weight": "starts.X_0.positions.weight",
    "ln_f": "norm",
}
LAYERS = {
    "ln_1": "attn.norm",
    "attn.c_attn": "attn.qkv",
    "attn.c_proj": "attn.out",
    "ln_2": "mlp.norm",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}
MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # of older files: no weights
HEAD = "lm_head.weight"


def own_name(name: str) -> str | None:
    """Our name of one of their tensors; None if we have none."""
    if name in TABLES:
        return TABLES[name]
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"h\.(\d+)\.(.+)", stem)
    if kind not in ("weight", "bias"):
        return None
    if stem in TABLES:
        return f"{TABLES[stem]}.{kind}"
    if layer and layer[2] in LAYERS:
        return f"blocks.{layer[1]}.{LAYERS[layer[2]]}.{kind}"
    return None


def build_gpt2(
    config: ModelConfig, tensors: Mapping[str, Tensor], source: Path, *, transposed: bool
) -> YuriiFormer:
    """A model of ``config`` with their tensors, each of which must have its place.

    ``transposed`` is for Hugging Face's files: the matrices of their linear maps stand (in, out).
    """
    table = tensors.get("transformer.wte.weight", tensors.get("wte.weight"))
    model = YuriiFormer(config, seed=None)
    wanted = model.state_dict()
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("transformer.")
        if MASK.fullmatch(short):
            continue
        if short == HEAD:
            if table is None or not torch.equal(tensor, table):
                raise ModelFileError(
                    f"{source}: the output projection is not the token table; a YuriiFormer's is"
                )
            continue
        own = own_name(short)
        if own is None or own not in wanted:
            raise ModelFileError(f"{source} holds {name!r}, which GPT-2 of this size has not")
        is_map = short.startswith("h.") and tensor.ndim == 2
        found[own] = (tensor.T if transposed and is_map else tensor).contiguous()
        if found[own].shape != wanted[own].shape:
            shapes = f"{tuple(found[own].shape)}, not {tuple(wanted[own].shape)}"
            raise ModelFileError(f"{source}: {name!r} has shape {shapes}")
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ModelFileError(
            f"{source} lacks {len(missing)} tensors of its configuration, such as {missing[0]!r}"
        )
    model.load_state_dict(found, assign=True)
    return model.requires_grad_(True)


def read_pickle(path: Path) -> Any:
    """What torch saved, of tensors and plain values alone: anything else could run code."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file anything may come
        said = one_line(error)
        if isinstance(error, UnpicklingError) and "Unsupported operand" not in said:
            raise ModelFileError(
                f"{path} holds more than tensors and plain values; it is not loaded, for that "
                "could run code of whoever made it"
            ) from None
        raise ModelFileError(
            f"{path} is damaged or was not written by torch.save: {type(error).__name__}"
        ) from None
