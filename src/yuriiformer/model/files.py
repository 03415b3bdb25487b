"""A model as a folder: weights as safetensors, configuration with the rule's full text as JSON.

The tokeniser travels with it: its name stands in the JSON file, and one that is not built in has a
file of its own. Nothing in the folder is executed on loading. Writing is atomic: the new folder is
written under another name and replaces the old one at the end. The JSON file holds the SHA-256 of
the weights and of the configuration, so damaged or truncated files are detected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import yuriiformer
from yuriiformer.data.tokenizers import TOKENIZER_FILE, Tokenizer, load_tokenizer
from yuriiformer.errors import ConfigError, ModelFileError, RuleError, brief
from yuriiformer.files import (
    claim_folder,
    new_folder,
    only_files,
    read_json,
    sha256,
    sha256_of_json,
    sync,
)
from yuriiformer.model.config import WEIGHTS, ModelConfig
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.tensor_files import TensorFiles, not_safetensors
from yuriiformer.reading import count, plain_text, problem_of, read_object

FORMAT = 1
CONFIG, MODEL = "model.json", "model"
FILES = {WEIGHTS, CONFIG, TOKENIZER_FILE}
FORM: dict[str, Any] = {
    "format": int,
    "config": dict,
    "config_sha256": str,
    "weights_sha256": str,
    "tokenizer?": ({"name": plain_text, "end_of_text": count}, None),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def save_model(model: YuriiFormer, folder: str | Path, tokenizer: Tokenizer | None = None) -> None:
    """Write a model's weights and configuration, and its tokeniser; an earlier model in the folder
    is replaced."""
    folder = Path(folder).resolve()  # so that a link stays a link
    claim_folder(folder, _is_model, "a model", ModelFileError)
    try:
        with new_folder(folder) as part:
            write_model(model, part, tokenizer)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder} cannot be written: {error}") from error


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a model that `save_model` wrote, and nothing else."""
    known = read_json(folder / CONFIG)
    return only_files(folder, FILES) and not problem_of(known, FORM)


def unwrap(model: nn.Module) -> YuriiFormer:
    """The model inside torch.compile's or a data-parallel wrapper."""
    while not isinstance(model, YuriiFormer):
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if not isinstance(inner, nn.Module):
            raise ModelFileError(f"only a YuriiFormer can be saved, not a {type(model).__name__}")
        model = inner
    return model


def write_model(model: YuriiFormer, folder: Path, tokenizer: Tokenizer | None = None) -> None:
    """The files of a model, into a folder that is there."""
    model = unwrap(model)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS)
    sync(folder / WEIGHTS)
    describe_model(model.config, folder, tokenizer)


def describe_model(config: ModelConfig, folder: Path, tokenizer: Tokenizer | None = None) -> None:
    """What belongs to weights that are there: the configuration with their hash, the tokeniser."""
    plain = config.to_dict()
    data: dict[str, Any] = {
        "format": FORMAT,
        "yuriiformer": yuriiformer.__version__,
        "config": plain,
        "config_sha256": sha256_of_json(plain),
        "weights_sha256": sha256(TensorFiles(folder, MODEL).head),
    }
    if tokenizer is not None:
        data["tokenizer"] = {"name": tokenizer.name, "end_of_text": tokenizer.end_of_text}
        if (text := tokenizer.to_text()) is not None:
            (folder / TOKENIZER_FILE).write_text(text, encoding="utf-8")
            sync(folder / TOKENIZER_FILE)
    written = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(written, encoding="utf-8")
    sync(folder / CONFIG)


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> YuriiFormer:
    """The model that `save_model` or a run wrote, in one file or several, with the dtypes it
    had."""
    folder = Path(folder)
    data = _read_config(folder)
    model = empty_model(data["config"], folder / CONFIG)
    files = TensorFiles(folder, MODEL)
    if sha256(files.head) != data["weights_sha256"]:
        raise ModelFileError(
            f"{files.head} is damaged or not the file that {CONFIG} speaks of (its SHA-256 "
            "differs): save or copy the model again"
        )
    files.check()
    compare_tensors(files.head, model.state_dict(), files.shapes)
    if files.divided:
        tensors = {name: files.whole(name) for name in files.shapes}
    else:
        tensors = read_tensors(files.head)
    check_weights(files.head, tensors)
    model.load_state_dict(tensors, assign=True)
    return model.to(device)


def weights_file(folder: Path) -> Path:
    """The file whose hash tells which weights a folder holds."""
    return TensorFiles(folder, MODEL).head


def empty_model(config: Any, source: Path) -> YuriiFormer:
    """A model of a saved configuration, without memory for its weights: a loader assigns them."""
    try:
        with torch.device("meta"):
            return YuriiFormer(ModelConfig.from_dict(config), seed=None)
    except (ConfigError, RuleError) as error:
        raise ModelFileError(f"{source}: {error}") from None


def check_header(path: Path, own: Mapping[str, Any], prefix: str = "") -> None:
    """Check that a safetensors file has the tensors of a model, before any of them is read."""
    shapes = TensorFiles(path.parent, path.stem).shapes
    compare_tensors(path, own, {name.removeprefix(prefix): each for name, each in shapes.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path, device="cpu")
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError) as error:
        raise not_safetensors(path, error) from None


def check_weights(path: Path, tensors: Mapping[Any, Any]) -> None:
    """Check that tensors are weights: plain, dense, in memory, of one floating-point type."""
    for name, tensor in tensors.items():
        what = _oddity(tensor)
        if what or not isinstance(name, str):
            raise ModelFileError(f"{path}: {brief(name)} cannot be a model's weights: {what}")
    kinds = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()})
    if len(kinds) > 1:
        raise ModelFileError(f"{path} mixes {' and '.join(kinds)}: save all weights as one type")


def _oddity(tensor: Any) -> str:
    """What keeps something from being a weight; empty if nothing does."""
    if not isinstance(tensor, Tensor):
        return f"its type is {type(tensor).__name__}"
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        return "it is not a plain dense tensor"
    if tensor.dtype not in DTYPES:
        return f"its type is {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return "the file holds fewer numbers than its shape says"
    return ""


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokeniser that was saved with a model; None if there was none."""
    known = _read_config(folder).get("tokenizer")
    if known is None:
        return None
    return load_tokenizer(known["name"], folder, known["end_of_text"])


def compare_tensors(path: Path, own: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Check that a file has the tensors of a model, and no others."""
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    both = [name for name in own if name in tensors]
    wrong = [name for name in both if tuple(own[name].shape) != tuple(tensors[name].shape)]
    problems = [
        f"{what} {brief(names[0])}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for what, names in (
            ("no tensor", missing),
            ("unknown tensor", extra),
            ("other shape of", wrong),
        )
        if names
    ]
    if problems:
        raise ModelFileError(f"{path} does not fit its configuration: {'; '.join(problems)}")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not folder.is_dir():
        raise ModelFileError(f"no model folder {str(folder)!r}")
    for file in (path, TensorFiles(folder, MODEL).head):
        if not file.is_file():
            raise ModelFileError(f"{folder} is not a model folder: it has no {file.name}")
    data = read_object(path, FORM, ModelFileError, FORMAT)
    if sha256_of_json(data["config"]) != data["config_sha256"]:
        raise ModelFileError(
            f"{path} is damaged or was edited (the SHA-256 of its 'config' differs): save or copy "
            "the model again"
        )
    return data
