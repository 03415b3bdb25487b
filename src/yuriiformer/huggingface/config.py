"""A model's configuration as transformers keep one."""

from __future__ import annotations

from typing import Any, Self

from transformers import PreTrainedConfig

from yuriiformer.errors import ConfigError
from yuriiformer.model.config import ModelConfig


class YuriiFormerConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """`ModelConfig` as plain data, the rule with its full text, under ``yuriiformer``.

    The other fields repeat parts of it under the names that transformers expect. They follow from
    it: a value that contradicts it is an error.
    """

    model_type = "yuriiformer"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

    yuriiformer: dict[str, Any] | None = None
    vocab_size: int | None = None
    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    max_position_embeddings: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True

    def __post_init__(self, **others: Any) -> None:
        if not isinstance(self.yuriiformer, dict | None):
            raise ConfigError(f"'yuriiformer' is a table, not {self.yuriiformer!r:.60}")
        config = ModelConfig.from_dict(self.yuriiformer or {})
        self.yuriiformer = config.to_dict()
        for name, value in _shape(config).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        self.model_config()
        super().__post_init__(**others)  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, config: ModelConfig, *, end_of_text: int | None = None) -> Self:
        """The same configuration; ``end_of_text`` begins, ends and pads texts."""
        ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end_of_text)
        return cls(yuriiformer=config.to_dict(), **ids)

    def model_config(self) -> ModelConfig:
        """What a `YuriiFormer` is built from."""
        config = ModelConfig.from_dict(self.yuriiformer or {})
        for name, value in _shape(config).items():
            if getattr(self, name) != value:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r} contradicts the model's configuration, which "
                    f"says {value}: change it there (under 'yuriiformer'), or leave it out"
                )
        return config


def _shape(config: ModelConfig) -> dict[str, Any]:
    """What follows from a configuration, by transformers' names."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": True,
    }
