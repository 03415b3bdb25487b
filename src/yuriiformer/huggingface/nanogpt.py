"""nanoGPT's checkpoints as models of the plain transformer's rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from yuriiformer.data.tokenizers import GPT2, padded
from yuriiformer.errors import ModelFileError
from yuriiformer.huggingface.weights import build_gpt2, read_pickle
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer

COMPILED = "_orig_mod."  # what torch.compile puts before the names
SIZES = {
    "n_layer": "n_layer",
    "n_head": "n_head",
    "d_model": "n_embd",
    "vocab_size": "vocab_size",
    "context": "block_size",
}


def import_nanogpt(path: str | Path) -> YuriiFormer:
    """The model in nanoGPT's ``ckpt.pt``, its biases and padded vocabulary as they are there.

    Only tensors and plain values are read: a file that holds anything else is refused, unopened.
    The GELU is exact, as nanoGPT's has been since its first months.
    """
    path = Path(path)
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
    return build_gpt2(config, tensors, path, transposed=False)


def _parts(data: Any, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of the model, and its tensors."""
    parts = [data.get(name) if isinstance(data, dict) else None for name in ("model_args", "model")]
    arguments, tensors = parts
    if not isinstance(arguments, dict) or not isinstance(tensors, dict):
        raise ModelFileError(f"{path} is not a checkpoint of nanoGPT: no 'model' and 'model_args'")
    if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ModelFileError(f"{path}: its 'model' holds other things than tensors")
    return arguments, {name.removeprefix(COMPILED): tensor for name, tensor in tensors.items()}
