# %% [markdown]
# # Look inside a model
#
# What does a model do from layer to layer? Two tiny models, one of gradient descent and one with momentum, are
# trained on the same batches and then traced on the same text.

# %%
from pathlib import Path

import torch

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.data.sources import Tales

work = Path("inside")
work.mkdir(exist_ok=True)
yf.prepare(Tales(300, seed=0), work / "tales", tokenizer="bpe:512")
for rule in ("gd-lie-trotter", "nesterov-lie-trotter"):
    config = yf.preset("tales-tiny", rule).with_(
        steps=40, eval_every=20, n_layer=4, d_model=32, n_head=2
    )
    yf.train(config, work / "tales", work / rule)

# %% [markdown]
# ## A trace
#
# `yf.trace` runs a model on tokens and records every step of every block. Tracing changes no bit of the result.

# %%
opened = {rule: yf.open_model(work / rule) for rule in ("gd-lie-trotter", "nesterov-lie-trotter")}
text = "Once upon a time there was a fox. The fox wanted to find a red ball."
traces = {}
for rule, each in opened.items():
    tokens = torch.tensor(each.tokenizer.encode(text))
    traces[rule] = yf.trace(each.model, tokens)

# %% [markdown]
# ## The logit lens
#
# The lens reads each layer as if the model ended there. Its loss falls from layer to layer; row 0 is the embedding,
# and the last row is the loss of the model itself.

# %%
for rule, found in traces.items():
    losses = found.by_layer["lens_loss"].nanmean(dim=1)
    print(rule, [round(float(loss), 3) for loss in losses])
    with torch.no_grad():
        own = opened[rule].model(found.tokens[None, :-1], found.tokens[None, 1:])
    assert len(losses) == 5
    assert abs(float(losses[-1] - own)) < 1e-4

# %% [markdown]
# ## Where X goes
#
# How far X moves in each layer. With LN_v a velocity has a fixed length, so the layers of the momentum rule move X
# by nearly the same distance.

# %%
moved = {rule: found.by_layer["step_length"].nanmean(dim=1)[1:] for rule, found in traces.items()}
for rule, distances in moved.items():
    print(rule, [round(float(distance), 2) for distance in distances])


def spread(values: torch.Tensor) -> float:
    return float(values.std() / values.mean())


assert spread(moved["nesterov-lie-trotter"]) < spread(moved["gd-lie-trotter"])

# %% [markdown]
# ## The page
#
# `yurii trace` writes a page to explore all of it, with both models side by side: `inside/seen/depth.html`, one file
# that needs no network.

# %%
words = ["trace", *(str(work / rule) for rule in traces), "--prompt", text, "--out", f"{work}/seen"]
assert main(words) == 0
assert (work / "seen/depth.html").exists()

# %% [markdown]
# [Looking inside](../docs/inside.md) explains every number, and says which of them are exact and which an analogy.
