"""YuriiFormer: a transformer block is one iteration of an optimisation method.

Names are imported when first used, so that ``yurii --help`` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yuriiformer.config import TrainConfig as TrainConfig
    from yuriiformer.data.order import BatchOrder as BatchOrder
    from yuriiformer.data.store import TokenStore as TokenStore
    from yuriiformer.data.tokenizers import gpt2_tokenizer as gpt2_tokenizer
    from yuriiformer.errors import YuriiError as YuriiError
    from yuriiformer.methods.catalog import rules as rules
    from yuriiformer.methods.coefficients import Coefficient as Coefficient
    from yuriiformer.methods.interpreter import apply_rule as apply_rule
    from yuriiformer.methods.interpreter import run_rule as run_rule
    from yuriiformer.methods.references import get_rule as get_rule
    from yuriiformer.methods.references import load_rule as load_rule
    from yuriiformer.methods.rule import Rule as Rule
    from yuriiformer.model.config import ModelConfig as ModelConfig
    from yuriiformer.model.files import load_model as load_model
    from yuriiformer.model.files import save_model as save_model
    from yuriiformer.model.model import YuriiFormer as YuriiFormer
    from yuriiformer.model.oracles import OraclePair as OraclePair
    from yuriiformer.model.oracles import register_oracles as register_oracles
    from yuriiformer.tracing.recorder import trace as trace
    from yuriiformer.training.muon import Muon as Muon
    from yuriiformer.training.presets import preset as preset
    from yuriiformer.training.session import train as train

__version__ = "0.1.0"

_HOME = {
    "tracing.recorder": ("trace",),
    "data.order": ("BatchOrder",),
    "data.store": ("TokenStore",),
    "data.tokenizers": ("gpt2_tokenizer",),
    "errors": ("YuriiError",),
    "methods.catalog": ("rules",),
    "methods.coefficients": ("Coefficient",),
    "methods.interpreter": ("apply_rule", "run_rule"),
    "methods.references": ("get_rule", "load_rule"),
    "methods.rule": ("Rule",),
    "model.config": ("ModelConfig",),
    "model.files": ("load_model", "save_model"),
    "model.model": ("YuriiFormer",),
    "model.oracles": ("OraclePair", "register_oracles"),
    "config": ("TrainConfig",),
    "training.muon": ("Muon",),
    "training.presets": ("preset",),
    "training.session": ("train",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE])
