# %% [markdown]
# # Fine-tune and upcycle a GPT-2
#
# A GPT-2 is gradient descent over depth: the rule `gd-lie-trotter`. This tutorial opens one, checks that it is the
# same model, trains it further as it is, and then continues it with a momentum rule from exactly where it stands.
#
# To need no download, it first makes a small GPT-2 of its own, in Hugging Face's format. For a released one, write
# `gpt2` (its name on the hub) or its folder where `small-gpt2` stands, and prepare the text with
# `tokenizer="gpt2"`.

# %%
from pathlib import Path

import torch

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.data.sources import Tales

work = Path("upcycled")
work.mkdir(exist_ok=True)
yf.prepare(Tales(300, seed=0), work / "tales", tokenizer="bpe:512")
config = yf.preset("tales-tiny", "gd-lie-trotter").with_(
    steps=30, eval_every=10, n_layer=2, d_model=32, n_head=2
)
yf.train(config, work / "tales", work / "first")
assert main(f"export {work}/first {work}/small-gpt2 --as gpt2".split()) == 0

# %% [markdown]
# ## It is the same model
#
# transformers opens the folder as a plain `GPT2LMHeadModel`. This package opens the same folder and gives the same
# logits.

# %%
from transformers import GPT2LMHeadModel

theirs = GPT2LMHeadModel.from_pretrained(work / "small-gpt2").eval()
ours = yf.open_model(work / "small-gpt2")
tokens = torch.arange(40).remainder(300)[None]
with torch.no_grad():
    a = theirs(tokens).logits
    b = ours.model.eval()(tokens)[..., : a.shape[-1]]
print(ours.rule.name, "largest difference of the logits:", float((a - b).abs().max()))
assert torch.allclose(a, b, atol=1e-4)

# %% [markdown]
# ## Fine-tuning
#
# `init_from` takes the weights by name and shape. The run says what came over, and the loss before its first step.

# %%
base = yf.preset("tales-tiny", "gd-lie-trotter").with_(
    steps=20, eval_every=10, n_layer=2, d_model=32, n_head=2, muon_lr=0.005, adamw_lr=0.002
)
longer = yf.train(
    base.with_(bias=True, gelu="tanh"),
    work / "tales",
    work / "longer",
    init_from=work / "small-gpt2",
)
print(longer.outcome)

# %% [markdown]
# ## Upcycling: the same model with momentum
#
# `nesterov-gated` contains gradient descent: at gate = μ = 0 its block does exactly what GPT-2's does. So it starts
# there, and the loss does not jump. The paper's Nesterov contains no such point, because LN_v fixes the length of the
# velocity: its loss jumps.

# %%
from yuriiformer.runs.metrics import read_metrics

for rule in ("nesterov-gated", "nesterov-lie-trotter"):
    momentum = base.with_(rule=rule, bias=True, gelu="tanh")
    out = work / rule
    yf.train(momentum, work / "tales", out, init_from=work / "small-gpt2")
    records = read_metrics(out / "metrics.jsonl")
    print(
        f"{rule}: {records[0]['val_loss']:.4f} at step 0, {records[-1]['val_loss']:.4f} at the end"
    )

# %%
start = read_metrics(work / "longer/metrics.jsonl")[0]["val_loss"]
gated = read_metrics(work / "nesterov-gated/metrics.jsonl")[0]["val_loss"]
jumped = read_metrics(work / "nesterov-lie-trotter/metrics.jsonl")[0]["val_loss"]
assert abs(gated - start) < 1e-4 < abs(jumped - start)

# %% [markdown]
# What the gates have learned, layer by layer:

# %%
model = yf.load_model(work / "nesterov-gated/checkpoints/final")
for layer, block in enumerate(model.blocks):
    print(layer, {name: round(value.item(), 4) for name, value in block.coefficients().items()})

# %% [markdown]
# [Fine-tuning and upcycling](../docs/finetuning.md) has the measured study: what this is worth on real text, with
# three seeds, and which control is missing.
