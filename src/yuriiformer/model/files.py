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
from torch import nn

import yuriiformer
from yuriiformer.data.tokenizers import TOKENIZER_FILE, Tokenizer, load_tokenizer
from yuriiformer.errors import ConfigError, ModelFileError, RuleError
from yuriiformer.files import new_folder, sha256, sha256_of_json, sync
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "model.json"
FILES = {WEIGHTS, CONFIG, TOKENIZER_FILE}
KEYS = {"format", "config", "config_sha256", "weights_sha256"}


def save_model(model: YuriiFormer, folder: str | Path, tokenizer: Tokenizer | None = None) -> None:
    """Write a model's weights and configuration, and its tokeniser; an earlier model in the folder
    is replaced."""
    folder = Path(folder).resolve()  # so that a link stays a link
    if folder.exists() and (not folder.is_dir() or {p.name for p in folder.iterdir()} - FILES):
        raise ModelFileError(f"{folder} holds other files: save a model to a folder of its own")
    try:
        with new_folder(folder) as part:
            write_model(model, part, tokenizer)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder} cannot be written: {error}") from error


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
    config = model.config.to_dict()
    data: dict[str, Any] = {
        "format": FORMAT,
        "yuriiformer": yuriiformer.__version__,
        "config": config,
        "config_sha256": sha256_of_json(config),
        "weights_sha256": sha256(folder / WEIGHTS),
    }
    if tokenizer is not None:
        data["tokenizer"] = {"name": tokenizer.name, "end_of_text": tokenizer.end_of_text}
        if (text := tokenizer.to_text()) is not None:
            (folder / TOKENIZER_FILE).write_text(text, encoding="utf-8")
            sync(folder / TOKENIZER_FILE)
    written = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(written, encoding="utf-8")
    sync(folder / WEIGHTS)
    sync(folder / CONFIG)


def load_model(folder: str | Path, *, device: str | torch.device = "cpu") -> YuriiFormer:
    """The model that `save_model` wrote, with the dtypes it had."""
    folder = Path(folder)
    data = _read_config(folder)
    if sha256(folder / WEIGHTS) != data["weights_sha256"]:
        raise ModelFileError(
            f"{folder / WEIGHTS} is damaged or not the file that {CONFIG} speaks of (its SHA-256 "
            "differs): save or copy the model again"
        )
    try:
        model = YuriiFormer(ModelConfig.from_dict(data["config"]), seed=None)
    except (ConfigError, RuleError, TypeError) as error:
        raise ModelFileError(f"{folder / CONFIG}: {error}") from None
    try:
        tensors = load_file(folder / WEIGHTS, device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{folder / WEIGHTS} is not a safetensors file: {error}") from None
    compare_tensors(folder / WEIGHTS, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model.to(device)


def read_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokeniser that was saved with a model; None if there was none."""
    known = _read_config(folder).get("tokenizer")
    if known is None:
        return None
    if not isinstance(known, dict) or not isinstance(known.get("end_of_text"), int):
        raise ModelFileError(f"{folder / CONFIG} is damaged: its tokeniser is {known!r:.60}")
    return load_tokenizer(str(known.get("name")), folder, known["end_of_text"])


def compare_tensors(path: Path, own: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """That a file has the tensors of a model, and no others."""
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    wrong = [n for n in own if n in tensors and own[n].shape != tensors[n].shape]
    problems = [
        f"{what} {names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
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
    for file in (path, folder / WEIGHTS):
        if not file.is_file():
            raise ModelFileError(f"{folder} is not a model folder: it has no {file.name}")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    if not isinstance(data, dict) or not data.keys() >= KEYS:
        raise ModelFileError(f"{path} is not a model's configuration")
    if data["format"] != FORMAT:
        raise ModelFileError(
            f"{path} has format {data['format']!r}; this version reads {FORMAT}: update yuriiformer"
        )
    if not isinstance(data["config"], dict):
        raise ModelFileError(f"{path} is not a model's configuration")
    if sha256_of_json(data["config"]) != data["config_sha256"]:
        raise ModelFileError(
            f"{path} is damaged or was edited (the SHA-256 of its 'config' differs): save or copy "
            "the model again"
        )
    return data
