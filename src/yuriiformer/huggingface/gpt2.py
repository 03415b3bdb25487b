"""Hugging Face's GPT-2 folders as models of the plain transformer's rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from yuriiformer.errors import ModelFileError
from yuriiformer.huggingface.weights import build_gpt2, read_pickle
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.methods.interpreter import LAYER_NORM_EPS
from yuriiformer.model.config import Gelu, ModelConfig
from yuriiformer.model.model import YuriiFormer

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


def import_gpt2(folder: str | Path) -> YuriiFormer:
    """The model in a folder of ``GPT2LMHeadModel.save_pretrained``, biases and all.

    Nothing in it is executed. Its dropout is left behind.
    """
    folder = Path(folder)
    data = _read_config(folder)
    config = _model_config(data, folder / CONFIG)
    return build_gpt2(config, _read_weights(folder), folder, transposed=True)


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


def _read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / WEIGHTS).is_file():
        try:
            return load_file(folder / WEIGHTS)
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
    return tensors
