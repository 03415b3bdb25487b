"""Models in other formats: Hugging Face's GPT-2, nanoGPT's checkpoints, this package's own exports.

The first two become models of the plain transformer's rule; both name their tensors alike. Only
files are read: transformers is not needed, and nothing in a file is executed.
"""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from yuriiformer.data.tokenizers import (
    GPT2,
    TOKENIZER_FILE,
    Tokenizer,
    find_fast_tokenizer,
    load_tokenizer,
    padded,
)
from yuriiformer.errors import ModelFileError, one_line
from yuriiformer.files import read_json
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.files import (
    check_header,
    check_weights,
    compare_tensors,
    empty_model,
    read_tensors,
)
from yuriiformer.model.gpt2 import SIZES, build_gpt2, checked_config, gpt2_config, without_masks
from yuriiformer.model.model import YuriiFormer
from yuriiformer.reading import read_object
from yuriiformer.sizes import size

EXPORTED = "yuriiformer"  # the model_type of an export, and its prefix for our configuration
Read = tuple[YuriiFormer, Tokenizer | None, Path]  # the model, its tokeniser, its weights' file
CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
COMPILED = "_orig_mod."  # what torch.compile puts before the names


def import_gpt2(folder: str | Path) -> YuriiFormer:
    """The model in a folder of ``GPT2LMHeadModel.save_pretrained``, biases and all.

    Nothing in it is executed. Its dropout is left behind.
    """
    return read_gpt2(Path(folder))[0]


def read_gpt2(folder: Path) -> Read:
    """The same with its tokeniser: the one in the folder, or GPT-2's where the vocabulary is."""
    data = _read_config(folder)
    config = gpt2_config(data, folder / CONFIG)
    tensors, weights = _read_weights(folder)
    model = build_gpt2(config, tensors, folder, transposed=True)
    return model, _tokenizer(folder, config), weights


def _tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    if (folder / TOKENIZER_FILE).is_file():
        return _exported_tokenizer(folder)  # it may have been exported here
    return GPT2() if config.real_vocab == GPT2.vocab_size else None


def read_export(folder: Path) -> Read:
    """What ``yurii export`` wrote."""
    data, path = _read_config(folder), folder / CONFIG
    known = data.get(EXPORTED)
    if not isinstance(known, dict):
        raise ModelFileError(f"{path} has no model's configuration under {EXPORTED!r}")
    model = empty_model(known, path)
    if (folder / WEIGHTS).is_file():
        check_header(folder / WEIGHTS, model.state_dict(), "model.")
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
    return read_object(path, dict, ModelFileError)


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    if (folder / WEIGHTS).is_file():
        tensors = without_masks(read_tensors(folder / WEIGHTS))
        check_weights(folder / WEIGHTS, tensors)
        return tensors, folder / WEIGHTS
    path = folder / PICKLE
    if not path.is_file():
        raise ModelFileError(
            f"{folder} has no {WEIGHTS} and no {PICKLE} (weights in several files must be saved "
            "as one first)"
        )
    tensors = read_pickle(path)
    if not isinstance(tensors, dict):
        raise ModelFileError(f"{path} is not a table of tensors")
    tensors = without_masks(tensors)
    check_weights(path, tensors)
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
    sizes = {
        ours: size(f"{path}: {theirs}", arguments[theirs], error=ModelFileError)
        for ours, theirs in SIZES.items()
    }
    padding = sizes["vocab_size"] == padded(GPT2.vocab_size)
    valid = GPT2.vocab_size if padding else None
    bias = arguments.get("bias", True) is not False
    config = checked_config(path, **sizes, valid_vocab=valid, bias=bias)
    model = build_gpt2(config, tensors, path, transposed=False)
    return model, _tokenizer(path, config), path


def _parts(data: Any, path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of the model, and its tensors."""
    parts = [data.get(name) if isinstance(data, dict) else None for name in ("model_args", "model")]
    arguments, tensors = parts
    if not isinstance(arguments, dict) or not isinstance(tensors, dict):
        raise ModelFileError(f"{path} is not a checkpoint of nanoGPT: no 'model' and 'model_args'")
    texts = {str(name).removeprefix(COMPILED): tensor for name, tensor in tensors.items()}
    tensors = without_masks(texts)
    check_weights(path, tensors)
    return arguments, tensors


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
