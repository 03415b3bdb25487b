"""A YuriiFormer as a causal language model of transformers: its configuration, and the model, which
shares the tensors and does not copy them."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Cache, DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import logging

from yuriiformer.errors import ConfigError, InputError, ModelFileError
from yuriiformer.huggingface.cache import block_caches, find_positions_and_mask, number_slots
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.loss import IGNORE, mean_cross_entropy
from yuriiformer.model.model import YuriiFormer, check_tokens
from yuriiformer.model.oracles import oracle_pair

logger = logging.get_logger(__name__)
_Output: Any = CausalLMOutputWithPast


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


class YuriiFormerForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """`YuriiFormer` (as ``model``) behind the interface of transformers.

    ``seed`` says where the weights of a new model start; `from_pretrained` draws none.
    """

    config_class = YuriiFormerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # the Trainer may pass the number of tokens of the mean
    _supports_sdpa = True
    _no_split_modules = {"Block"}  # noqa: RUF012
    _skip_keys_device_placement = {"past_key_values"}  # noqa: RUF012

    def __init__(self, config: YuriiFormerConfig, *, seed: int = 0) -> None:
        super().__init__(config)
        own = config.model_config()
        self.model = YuriiFormer(own, seed=seed)  # on the meta device nothing is drawn
        self.slots = number_slots(own.rule.programs(own.n_layer))
        self.caches = oracle_pair(own).caches and any(self.slots)
        if not self.caches:
            self.generation_config.use_cache = False
        self.post_init()  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, model: YuriiFormer, *, end_of_text: int | None = None) -> Self:
        """Wrap an existing model: its tensors are shared, not copied."""
        config = YuriiFormerConfig.of(model.config, end_of_text=end_of_text)
        with torch.device("meta"):
            wrapped = cls(config)
        wrapped.model = model
        wrapped.train(model.training)
        return wrapped

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """As in transformers, but a checkpoint that lacks tensors is an error."""
        wants_report = options.pop("output_loading_info", False)
        loaded: Any = super().from_pretrained(*arguments, output_loading_info=True, **options)
        model, report = loaded
        missing = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
        if missing:
            raise ModelFileError(
                f"the weights lack {missing[0]!r} and {len(missing) - 1} more: they are damaged, "
                "or not of this configuration"
            )
        for name in model.model.dead_parameters():  # loading has replaced the frozen ones
            model.model.get_parameter(name).requires_grad_(False)
        return (model, report) if wants_report else model

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: `YuriiFormer` has drawn its start by name and seed."""

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        return_dict: bool | None = None,
        **others: Any,
    ) -> Any:
        """Logits, and with ``labels`` (the tokens themselves, -100 where they do not count) the
        mean loss. While training, the full logits are not computed: they are None.

        With ``output_hidden_states``: X before each block, and after the last one and the final
        norm."""
        # Not a named argument: the Trainer would take it for a label.
        targets = others.pop("shift_labels", None)
        if targets is None and labels is not None:
            # The target of each token is the label of the next one; the last has none.
            targets = F.pad(labels, (0, 1), value=IGNORE)[:, 1:]
        tokens = _check(input_ids, others)
        tokens, targets = check_tokens(tokens, targets, self.model.config)
        cache = self._cache(past_key_values, use_cache)
        wanted = output_hidden_states
        states: list[Tensor] | None
        states = [] if (self.config.output_hidden_states if wanted is None else wanted) else None
        hidden = self._hidden(tokens, attention_mask, position_ids, cache, states)
        loss = None if targets is None else self._loss(hidden, targets, num_items_in_batch)
        learns = self.training and torch.is_grad_enabled()
        logits = None if loss is not None and learns else self._logits(hidden, logits_to_keep)
        seen = None if states is None else (*states, hidden)
        output = _Output(loss=loss, logits=logits, past_key_values=cache, hidden_states=seen)
        as_tuple = return_dict is False or (return_dict is None and not self.config.return_dict)
        return output.to_tuple() if as_tuple else output

    def _cache(self, given: Cache | None, wanted: bool | None) -> Cache | None:
        recomputes = self.model.recompute and torch.is_grad_enabled()
        if given is not None and (recomputes or not self.caches):
            why = "while gradients are checkpointed" if recomputes else "with these oracles"
            raise InputError(f"a key/value cache cannot be used {why}: say use_cache=False")
        if wanted is None:
            wanted = self.config.use_cache and not self.training
        if given is None and wanted and self.caches and not recomputes:
            return DynamicCache()
        return given

    def _hidden(
        self,
        tokens: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        cache: Cache | None,
        states: list[Tensor] | None,
    ) -> Tensor:
        """``states`` gets X before each block."""
        positions, mask, causal = find_positions_and_mask(
            tokens, attention_mask, position_ids, cache
        )
        _check_positions(positions, self.model.config)
        if mask is not None and not oracle_pair(self.model.config).caches:
            raise InputError(
                f"oracles {self.model.config.oracles!r} know no padding: give texts of one length"
            )
        context = Context(positions, mask=mask, causal=causal)
        slots = None if cache is None else block_caches(cache, self.slots)

        def watch(_: int, streams: dict[str, Tensor]) -> None:
            assert states is not None
            states.append(streams["X"])

        seen = None if states is None else watch
        hidden: Tensor = self.model.hidden(tokens, context, slots, seen)
        return hidden

    def _loss(self, hidden: Tensor, targets: Tensor, items: Tensor | int | None) -> Tensor:
        """The model's own loss; ``items`` is how many tokens a mean over several batches has."""
        if items is None:
            return mean_cross_entropy(hidden, self.model.token_table, targets)
        count = (targets != IGNORE).sum()
        if not bool(count):  # the mean of none is NaN, but their sum is 0
            return 0.0 * hidden.sum()
        return mean_cross_entropy(hidden, self.model.token_table, targets) * (count / items)

    def _logits(self, hidden: Tensor, keep: int | Tensor) -> Tensor:
        """Of the last ``keep`` tokens, or of those it names; 0 is all. Ids that are padding of the
        vocabulary are impossible, but while training they are as they are, to be learnt from."""
        kept = hidden[:, -keep:] if isinstance(keep, int) else hidden[:, keep]
        logits = F.linear(kept, self.model.token_table)
        real = self.model.config.real_vocab
        if real < logits.shape[-1] and not (self.training and torch.is_grad_enabled()):
            logits[..., real:] = -torch.inf
        return logits

    def _prepare_generated_length(self, generation_config: Any, *others: Any, **named: Any) -> Any:
        """Text ends at the context: the last prediction is one token beyond it."""
        context, length = self.model.config.context, named["input_ids_length"]
        if length > context:
            raise InputError(
                f"the prompt has {length} tokens, but this model's context is {context}: cut it"
            )
        prepare: Any = super()._prepare_generated_length  # type: ignore[misc]
        generation_config = prepare(generation_config, *others, **named)
        if generation_config.max_length > context + 1:
            logger.warning_once(
                f"This model's context is {context} tokens: text ends there, short of the "
                f"{generation_config.max_length} asked for. YuriiFormer.generate can continue."
            )
            generation_config.max_length = context + 1
        return generation_config

    def _get_static_cache_init_shape(self) -> None:
        """None: the oracle decides the shape when it is first called."""

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether blocks are computed again in the backward pass."""
        return bool(self.model.recompute)

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, value: bool) -> None:
        self.model.recompute = value

    def get_input_embeddings(self) -> nn.Embedding:
        table = self.model.starts["X_0"].get_submodule("tokens")
        assert isinstance(table, nn.Embedding)
        return table

    def set_input_embeddings(self, value: nn.Module) -> None:
        raise InputError("the token tables cannot be replaced: streams and output share their ids")

    def get_output_embeddings(self) -> None:
        """None: the output projection is the token table."""

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *_: Any, **__: Any
    ) -> nn.Embedding:
        if new_num_tokens in (None, self.model.config.vocab_size):
            return self.get_input_embeddings()
        raise InputError(
            f"the vocabulary of {self.model.config.vocab_size} ids (padding included) cannot be "
            f"resized to {new_num_tokens}: build a model with vocab_size={new_num_tokens}"
        )


def _check(input_ids: Tensor | None, others: dict[str, Any]) -> Tensor:
    """The tokens; unsupported arguments are errors."""
    asked = [name for name, value in others.items() if value is not None and value is not False]
    if asked:
        raise InputError(f"a YuriiFormer has no {asked[0]!r}: leave it out")
    if input_ids is None:
        raise InputError("input_ids are needed: other streams start from the tokens too")
    return input_ids


def _check_positions(positions: Tensor, config: ModelConfig) -> None:
    if torch.compiler.is_compiling() or type(positions) is not Tensor:
        return
    last = int(positions.max())
    if last >= config.context:
        raise InputError(
            f"position {last} is beyond this model's context of {config.context} tokens: cut the "
            "text, or generate less"
        )
