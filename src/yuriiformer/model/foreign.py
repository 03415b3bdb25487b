"""Models in other formats: Hugging Face's GPT-2, nanoGPT's checkpoints, this package's own exports.

The first two become models of the plain transformer's rule; both name their tensors alike. Only
files are read: transformers is not needed, and nothing in a file is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from yuriiformer.data.tokenizers import (
    GPT2,
    TOKENIZER_FILE,
    Tokenizer,
    find_fast_tokenizer,
    load_tokenizer,
    padded,
)
from yuriiformer.errors import ConfigError, ModelFileError, RuleError, one_line
from yuriiformer.files import read_json
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.methods.interpreter import LAYER_NORM_EPS
from yuriiformer.model.config import Gelu, ModelConfig
from yuriiformer.model.files import compare_tensors
from yuriiformer.model.model import YuriiFormer

EXPORTED = "yuriiformer"  # the model_type of an export, and its prefix for our configuration
Read = tuple[YuriiFormer, Tokenizer | None, Path]  # the model, its tokeniser, its weights' file
CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
GELU: dict[str, Gelu] = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "exact"}
USUAL: dict[str, Any] = {  # with any other value it is another function
    "model_type": "gpt2",
    "layer_norm_epsilon": LAYER_NORM_EPS,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
COMPILED = "_orig_mod."  # what torch.compile puts before the names
SIZES = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "d_model": "n_embd",
    "vocab_size": "vocab_size",
    "context": "block_size",
}
TABLES = {"wte": "starts.X_0.tokens", "wpe": "starts.X_0.positions", "ln_f": "norm"}
LAYERS = {
    "ln_1": "attn.norm",
    "attn.c_attn": "attn.qkv",
    "attn.c_proj": "attn.out",
    "ln_2": "mlp.norm",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}
MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # in older files; not weights
HEAD = "lm_head.weight"


def import_gpt2(folder: str | Path) -> YuriiFormer:
    """The model in a folder of ``GPT2LMHeadModel.save_pretrained``, biases and all.

    Nothing in it is executed. Its dropout is left behind.
    """
    return read_gpt2(Path(folder))[0]


def read_gpt2(folder: Path) -> Read:
    """The same with its tokeniser: the one in the folder, or GPT-2's where the vocabulary is."""
    data = _read_config(folder)
    config = _model_config(data, folder / CONFIG)
    tensors, weights = _read_weights(folder)
    model = build_gpt2(config, tensors, folder, transposed=True)
    return model, _tokenizer(folder, config), weights


def _tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    if (folder / TOKENIZER_FILE).is_file():
        return find_fast_tokenizer(folder)
    return GPT2() if config.real_vocab == GPT2.vocab_size else None


def read_export(folder: Path) -> Read:
    """What ``yurii export`` wrote."""
    data, path = _read_config(folder), folder / CONFIG
    known = data.get(EXPORTED)
    if not isinstance(known, dict):
        raise ModelFileError(f"{path} has no model's configuration under {EXPORTED!r}")
    try:
        model = YuriiFormer(ModelConfig.from_dict(known), seed=None)
    except (ConfigError, RuleError, TypeError) as error:
        raise ModelFileError(f"{path}: {error}") from None
    tensors, weights = _read_weights(folder)
    own = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    compare_tensors(weights, model.state_dict(), own)
    model.load_state_dict(own, assign=True)
    return model, _exported_tokenizer(folder), weights


def _exported_tokenizer(folder: Path) -> Tokenizer | None:
    """With the name that it had here, which transformers keep for us."""
    if not (folder / TOKENIZER_FILE).is_file():
        return None
    name = read_json(folder / "tokenizer_config.json").get(EXPORTED)
    found = find_fast_tokenizer(folder)
    if not isinstance(name, str) or name == found.name:
        return found
    return load_tokenizer(name, folder, found.end_of_text)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise ModelFileError(
            f"{folder} is not a folder of a Hugging Face model: it has no {CONFIG}"
        )
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict):
        raise ModelFileError(f"{path} is not a model's configuration")
    return data


def _model_config(data: dict[str, Any], path: Path) -> ModelConfig:
    for name, usual in USUAL.items():
        value = data.get(name, None if name == "model_type" else usual)
        if value != usual:
            raise ModelFileError(f"{path}: {name}={value!r} cannot be taken over, only {usual!r}")
    activation = data.get("activation_function", "gelu_new")
    if activation not in GELU:
        raise ModelFileError(
            f"{path}: activation_function={activation!r} cannot be taken over, only "
            f"{', '.join(GELU)}"
        )
    d_model = data.get("n_embd", 768)
    if data.get("n_inner") not in (None, 4 * d_model):
        raise ModelFileError(f"{path}: n_inner={data['n_inner']!r} is not 4 × n_embd={d_model}")
    return ModelConfig(
        BASELINE,
        n_layer=data.get("n_layer", 12),
        n_head=data.get("n_head", 12),
        d_model=d_model,
        vocab_size=data.get("vocab_size", 50257),
        context=data.get("n_positions", 1024),
        bias=True,
        gelu=GELU[activation],
    )


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    if (folder / WEIGHTS).is_file():
        try:
            return load_file(folder / WEIGHTS), folder / WEIGHTS
        except (SafetensorError, OSError, ValueError) as error:
            raise ModelFileError(f"{folder / WEIGHTS} is not a safetensors file: {error}") from None
    path = folder / PICKLE
    if not path.is_file():
        raise ModelFileError(
            f"{folder} has no {WEIGHTS} and no {PICKLE} (weights in several files must be saved "
            "as one first)"
        )
    tensors = read_pickle(path)
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise ModelFileError(f"{path} is not a table of tensors")
    return tensors, path


def import_nanogpt(path: str | Path) -> YuriiFormer:
    """The model in nanoGPT's ``ckpt.pt``, its biases and padded vocabulary as they are there.

    Only tensors and plain values are read: a file with anything else is not loaded.
    The GELU is exact, as nanoGPT's has been since its first months.
    """
    return read_nanogpt(Path(path))[0]


def read_nanogpt(path: Path) -> Read:
    """The same, with GPT-2's tokeniser where the vocabulary is GPT-2's: the file does not say."""
    if not path.is_file():
        raise ModelFileError(f"no file {str(path)!r}")
    arguments, tensors = _parts(read_pickle(path), path)
    missing = [name for name in SIZES.values() if name not in arguments]
    if missing:
        raise ModelFileError(f"{path}: its model_args have no {missing[0]!r}")
    vocabulary = arguments["vocab_size"]
    config = ModelConfig(
        BASELINE,
        **{ours: arguments[theirs] for ours, theirs in SIZES.items()},
        valid_vocab=GPT2.vocab_size if vocabulary == padded(GPT2.vocab_size) else None,
        bias=bool(arguments.get("bias", True)),
    )
    model = build_gpt2(config, tensors, path, transposed=False)
    return model, _tokenizer(path, config), path


def _parts(data: Any, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of the model, and its tensors."""
    parts = [data.get(name) if isinstance(data, dict) else None for name in ("model_args", "model")]
    arguments, tensors = parts
    if not isinstance(arguments, dict) or not isinstance(tensors, dict):
        raise ModelFileError(f"{path} is not a checkpoint of nanoGPT: no 'model' and 'model_args'")
    if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ModelFileError(f"{path}: its 'model' holds other things than tensors")
    return arguments, {name.removeprefix(COMPILED): tensor for name, tensor in tensors.items()}


def _own_names(layers: int) -> dict[str, str]:
    """Our name of each of their tensors."""
    names = dict(TABLES)
    for layer in range(layers):
        names |= {f"h.{layer}.{one}": f"blocks.{layer}.{two}" for one, two in LAYERS.items()}
    kinds = ("weight", "bias")
    return {f"{one}.{kind}": f"{other}.{kind}" for one, other in names.items() for kind in kinds}


def build_gpt2(
    config: ModelConfig, tensors: Mapping[str, Tensor], source: Path, *, transposed: bool
) -> YuriiFormer:
    """A model of ``config`` with these tensors, all of which must be used.

    ``transposed`` is for Hugging Face's files: the matrices of their linear maps stand (in, out).
    """
    table = tensors.get("transformer.wte.weight", tensors.get("wte.weight"))
    model = YuriiFormer(config, seed=None)
    names, wanted = _own_names(config.n_layer), model.state_dict()
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
        own = names.get(short)
        if own is None or own not in wanted:
            raise ModelFileError(f"{source} holds {name!r}, which GPT-2 of this size does not have")
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
    """What torch saved, if it is tensors and plain values only: anything else could run code."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        said = one_line(error)
        if isinstance(error, UnpicklingError) and "Unsupported operand" not in said:
            raise ModelFileError(
                f"{path} holds more than tensors and plain values; it is not loaded, because "
                "that could run code"
            ) from None
        raise ModelFileError(
            f"{path} is damaged or was not written by torch.save: {type(error).__name__}"
        ) from None
