"""A model as a folder: weights as safetensors, configuration with the rule's full text as JSON.

Nothing in it is executed on loading. Writing is atomic: the new folder is written under another
name and replaces the old one at the end. The JSON file holds the SHA-256 of the weights and of the
configuration, so damaged or truncated files are detected.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

import yuriiformer
from yuriiformer.errors import ConfigError, ModelFileError, RuleError
from yuriiformer.files import new_folder, sha256, sha256_of_json, sync
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer

FORMAT = 1
WEIGHTS, CONFIG = "model.safetensors", "model.json"
KEYS = {"format", "config", "config_sha256", "weights_sha256"}


def save_model(model: YuriiFormer, folder: str | Path) -> None:
    """Write a model's weights and configuration; an earlier model in the folder is replaced."""
    folder = Path(folder).resolve()  # so that a link stays a link
    if folder.exists() and (
        not folder.is_dir() or {p.name for p in folder.iterdir()} - {WEIGHTS, CONFIG}
    ):
        raise ModelFileError(f"{folder} holds other files: save a model to a folder of its own")
    try:
        with new_folder(folder) as part:
            write_model(model, part)
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


def write_model(model: YuriiFormer, folder: Path) -> None:
    """The two files of a model, into a folder that is there."""
    model = unwrap(model)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / WEIGHTS)
    config = model.config.to_dict()
    data = {
        "format": FORMAT,
        "yuriiformer": yuriiformer.__version__,
        "config": config,
        "config_sha256": sha256_of_json(config),
        "weights_sha256": sha256(folder / WEIGHTS),
    }
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
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
    _compare(folder, model.state_dict(), tensors)
    model.load_state_dict(tensors, assign=True)
    return model.to(device)


def _compare(folder: Path, own: dict[str, Any], tensors: dict[str, Any]) -> None:
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
        raise ModelFileError(f"{folder / WEIGHTS} does not fit its {CONFIG}: {'; '.join(problems)}")


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
