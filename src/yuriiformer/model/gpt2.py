"""What GPT-2 is here: a model of the plain transformer's rule with other names. Its configuration
and its tensors, read and written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yuriiformer.errors import ConfigError, ModelFileError, brief
from yuriiformer.methods.catalog import BASELINE, rules
from yuriiformer.methods.evaluation import LAYER_NORM_EPS
from yuriiformer.model.config import Gelu, ModelConfig
from yuriiformer.model.files import empty_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.sizes import size

GELU: dict[str, Gelu] = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "exact"}
USUAL: dict[str, Any] = {  # with any other value it is another function
    "model_type": "gpt2",
    "layer_norm_epsilon": LAYER_NORM_EPS,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
GPT2_SIZES = {
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "vocab_size": 50257,
    "n_positions": 1024,
}
SIZES = {  # ours -> nanoGPT's
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


def gpt2_config(data: dict[str, Any], path: Path) -> ModelConfig:
    for name, usual in USUAL.items():
        value = data.get(name, None if name == "model_type" else usual)
        if value != usual:
            raise ModelFileError(
                f"{path}: {name}={brief(value)} cannot be taken over, only {usual!r}"
            )
    activation = data.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in GELU:
        raise ModelFileError(
            f"{path}: activation_function={brief(activation)} cannot be taken over, only "
            f"{', '.join(GELU)}"
        )
    sizes = {name: data.get(name, usual) for name, usual in GPT2_SIZES.items()}
    for name, value in sizes.items():
        size(f"{path}: {name}", value, error=ModelFileError)
    if data.get("n_inner") not in (None, 4 * sizes["n_embd"]):
        raise ModelFileError(
            f"{path}: n_inner={brief(data['n_inner'])} is not 4 × n_embd={sizes['n_embd']}"
        )
    sizes["block_size"] = sizes.pop("n_positions")
    own = {ours: sizes[theirs] for ours, theirs in SIZES.items()}
    return checked_config(path, **own, bias=True, gelu=GELU[activation])


def checked_config(source: Path, **values: Any) -> ModelConfig:
    """The configuration of a plain transformer; an error names the file."""
    try:
        return ModelConfig(BASELINE, **values)
    except ConfigError as error:
        raise ModelFileError(f"{source}: {error}") from None


def without_masks(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Older files hold attention's mask, of another type than the weights."""

    def is_mask(name: object) -> bool:
        return isinstance(name, str) and bool(MASK.fullmatch(name.removeprefix("transformer.")))

    return {name: tensor for name, tensor in tensors.items() if not is_mask(name)}


def own_names(layers: int) -> dict[str, str]:
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
    model = empty_model(config.to_dict(), source)
    names, wanted = own_names(config.n_layer), model.state_dict()
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("transformer.")
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
        turned = tensor.T if transposed and is_map else tensor
        if turned.shape != wanted[own].shape:
            shapes = f"{tuple(turned.shape)}, not {tuple(wanted[own].shape)}"
            raise ModelFileError(f"{source}: {name!r} has shape {shapes}")
        found[own] = turned.contiguous()
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ModelFileError(
            f"{source} lacks {len(missing)} tensors of its configuration, such as {missing[0]!r}"
        )
    model.load_state_dict(found, assign=True)
    return model.requires_grad_(True)


def gpt2_settings(config: ModelConfig) -> dict[str, Any]:
    """What a plain GPT-2 that computes the same has in its ``config.json``; refused where there is
    none."""
    plain = rules[BASELINE]
    if config.rule.assigns != plain.assigns or config.rule.streams != plain.streams:
        raise ModelFileError(
            f"GPT-2's block is the rule {BASELINE}; this model's is {config.rule.name}: export it "
            "without --as gpt2"
        )
    if config.oracles != "paper":
        raise ModelFileError(
            f"GPT-2 has the oracles 'paper', and this model {config.oracles!r}: export it without "
            "--as gpt2"
        )
    usual = {**USUAL, "architectures": ["GPT2LMHeadModel"]}
    sizes = {"n_layer": config.n_layer, "n_head": config.n_head, "n_embd": config.d_model}
    activation = next(theirs for theirs, ours in GELU.items() if ours == config.gelu)
    dropout = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return {
        **usual,
        **sizes,
        "n_positions": config.context,
        "vocab_size": config.real_vocab,
        "activation_function": activation,
        **dropout,
    }


def gpt2_tensors(model: YuriiFormer) -> dict[str, Tensor]:
    """The weights as Hugging Face's GPT-2 has them: maps stand (in, out), every map and norm has
    a bias (0 where this model has none), and the token table has no padding."""
    own, found = model.state_dict(), {}
    for theirs, ours in own_names(model.config.n_layer).items():
        if ours in own:
            tensor = own[ours]
        elif theirs.endswith(".bias") and theirs.startswith(("h.", "ln_f")):
            tensor = torch.zeros(len(own[ours.replace(".bias", ".weight")]))
        else:
            continue  # tables have no bias
        is_map = theirs.startswith("h.") and tensor.ndim == 2
        found[f"transformer.{theirs}"] = (tensor.T if is_map else tensor).contiguous()
    table = "transformer.wte.weight"
    return {**found, table: found[table][: model.config.real_vocab].contiguous()}
