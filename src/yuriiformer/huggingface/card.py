"""The model card of an export: the rule, the sizes, and how to open it."""

from __future__ import annotations

import re
from typing import Literal

from yuriiformer.citation import BIBTEX, PAPER, URL
from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.methods.rule import Rule
from yuriiformer.model.model import YuriiFormer

As = Literal["yuriiformer", "gpt2"]

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
| blocks | {config.n_layer} |
| heads | {config.n_head} |
| width | {config.d_model} |
| context | {config.context} tokens |
| vocabulary | {vocabulary} |
| oracles | {config.oracles} |
| parameters | {parameters:,} (without position tables and those of other streams) |

## Use

```python
{imports}

model = AutoModelForCausalLM.from_pretrained("FOLDER")
{text}```

{remark}

## Citation

The idea is from [{paper}]({url}):

```bibtex
{bibtex}```
"""

REGISTER = "import yuriiformer.huggingface  # makes transformers know the model\n"
REMARKS = {
    "yuriiformer": """\
This needs `pip install 'yuriiformer[hf]'`. Instead of the first line, `from_pretrained(...,
trust_remote_code=True)` does it too: it runs `modeling_yuriiformer.py`, which imports the package.
`config.json` holds the rule's full text; nothing else in this folder is executed on loading.""",
    "gpt2": "This is a plain GPT-2: transformers alone open it.",
}

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


def model_card(model: YuriiFormer, tokenizer: Tokenizer | None, kind: As = "yuriiformer") -> str:
    """Markdown with the rule, the sizes, and how to load the model."""
    config = model.config
    padded = config.vocab_size - config.real_vocab
    vocabulary = f"{config.real_vocab:,} tokens" + (f" and {padded} of padding" if padded else "")
    if tokenizer is not None:
        vocabulary += f" ({tokenizer.name})"
    rule = config.rule
    return CARD.format(
        config=config,
        name=_escaped(rule.name),
        label=_escaped(rule.label),
        note=_escaped(rule.note),
        equations=rule.equations,
        streams=_streams(rule),
        vocabulary=vocabulary,
        parameters=model.num_parameters(),
        imports=(REGISTER if kind == "yuriiformer" else "")
        + (WITHOUT_TOKENIZER if tokenizer is None else WITH_TOKENIZER),
        remark=REMARKS[kind],
        paper=PAPER,
        url=URL,
        bibtex=BIBTEX,
        text=WITHOUT_TEXT if tokenizer is None else WITH_TEXT,
    )


def _escaped(text: str) -> str:
    """Text of a rule in Markdown: as it reads, on one line, without links or HTML."""
    return re.sub(r"([\\`*\[\]<>|#~&!])", r"\\\1", " ".join(text.split()))


def _streams(rule: Rule) -> str:
    """Where the streams start, and which coefficients there are."""
    starts = ", ".join(f"`{name}` from {start}" for name, start in rule.streams.items())
    learned = [f"`{name}`" for name, spec in rule.coefficients.items() if spec.learned]
    fixed = [f"`{name}`" for name, spec in rule.coefficients.items() if not spec.learned]
    parts = [f"Streams start: {starts}."]
    parts += [f"Learned in every block: {', '.join(learned)}."] if learned else []
    parts += [f"Fixed: {', '.join(fixed)}."] if fixed else []
    return " ".join(parts)
