"""The card of an exported model."""

from __future__ import annotations

from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.methods.rule import Rule
from yuriiformer.model.model import YuriiFormer

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags:
- yuriiformer
---

# {label}

A language model whose blocks are iterations of an optimisation method on token embeddings: a
YuriiFormer of the rule `{name}`. {note}

A block is:

```
{equations}
```

{streams}

| | |
|---|---|
| blocks | {layers} |
| heads | {heads} |
| width | {width} |
| context | {context} tokens |
| vocabulary | {vocabulary} |
| oracles | {oracles} |
| parameters | {parameters:,} (without position tables and those of other streams) |

## Use

```python
import yuriiformer.huggingface  # makes transformers know the model; pip install yuriiformer
{imports}

model = AutoModelForCausalLM.from_pretrained("FOLDER")
{text}```

`config.json` holds the rule's full text; nothing in this folder is executed on loading.
"""

WITH_TOKENIZER = "from transformers import AutoModelForCausalLM, AutoTokenizer"
WITHOUT_TOKENIZER = "import torch\nfrom transformers import AutoModelForCausalLM"
WITH_TEXT = """\
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
tokens = tokenizer("Once upon a time", return_tensors="pt")
print(tokenizer.decode(model.generate(**tokens, max_new_tokens=50)[0]))
"""
WITHOUT_TEXT = """\
print(model.generate(torch.tensor([[0, 1, 2]]), max_new_tokens=50))  # the tokeniser is not known
"""


def model_card(model: YuriiFormer, tokenizer: Tokenizer | None) -> str:
    """Markdown with the rule, the sizes, and how to load the model."""
    config = model.config
    padded = config.vocab_size - config.real_vocab
    vocabulary = f"{config.real_vocab:,} tokens" + (f" and {padded} of padding" if padded else "")
    if tokenizer is not None:
        vocabulary += f" ({tokenizer.name})"
    return CARD.format(
        label=config.rule.label,
        name=config.rule.name,
        note=config.rule.note,
        equations=config.rule.equations,
        streams=_streams(config.rule),
        layers=config.n_layer,
        heads=config.n_head,
        width=config.d_model,
        context=config.context,
        vocabulary=vocabulary,
        oracles=config.oracles,
        parameters=model.num_parameters(),
        imports=WITHOUT_TOKENIZER if tokenizer is None else WITH_TOKENIZER,
        text=WITHOUT_TEXT if tokenizer is None else WITH_TEXT,
    )


def _streams(rule: Rule) -> str:
    """Where the streams start, and which coefficients there are."""
    starts = ", ".join(f"`{name}` from {start}" for name, start in rule.streams.items())
    learned = [f"`{name}`" for name, spec in rule.coefficients.items() if spec.learned]
    fixed = [f"`{name}`" for name, spec in rule.coefficients.items() if not spec.learned]
    parts = [f"Streams start: {starts}."]
    parts += [f"Learned in every block: {', '.join(learned)}."] if learned else []
    parts += [f"Fixed: {', '.join(fixed)}."] if fixed else []
    return " ".join(parts)
