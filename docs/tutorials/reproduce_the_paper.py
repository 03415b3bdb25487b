# %% [markdown]
# # Reproduce the paper
#
# The paper's experiments take GPU days. The commands are the same at any size, so this tutorial runs them on a small
# part and a tiny model, up to the paper's own tables and figures. At the end you change two words to get the real
# thing.

# %%
from pathlib import Path

from yuriiformer.cli.main import main
from yuriiformer.data.tales import grammar as tales

work = Path("reproduced")
work.mkdir(exist_ok=True)


def yurii(command: str) -> None:
    assert main(command.split()) == 0


# %% [markdown]
# ## What it would cost
#
# `yurii plan` runs the real training step on tensors without memory, and counts.

# %%
yurii("plan --preset tinystories-small --rule nesterov-lie-trotter --device h200 --gpus 2")

# %% [markdown]
# ## Data
#
# `yurii prepare tinystories --out data` downloads the paper's corpus and splits it as the paper does. Here a file
# stands in for it, in the same form: stories with end marks between them.

# %%
stories = [str(tales.story(0, index)) for index in range(400)]
(work / "stories.txt").write_text("<|endoftext|>".join(stories))
yurii(
    f"prepare tinystories --from {work}/stories.txt --tokenizer bpe:512 --val-fraction 0.1"
    f" --workers 1 --out {work}/data"
)

# %% [markdown]
# ## Runs
#
# For the paper: `--preset tinystories-small --rules paper`. Here two rules, 10 steps and a tiny model.

# %%
yurii(
    f"suite --data {work}/data --rules gd-lie-trotter nesterov-lie-trotter --jobs 2"
    f" --set steps=10 n_layer=2 d_model=32 n_head=2 --out {work}/suite"
)

# %% [markdown]
# ## The paper's tables and figures
#
# `--paper` gives them in the paper's own layout. The paper's numbers stand beside yours only where the setting is
# the paper's; here it is not, and the report says so.

# %%
yurii(f"report {work}/suite --paper --formats png")
index = (work / "suite/report/paper/index.md").read_text()
print(index)
assert "Not the paper's setting" in index
print((work / "suite/report/paper/table-2-tinystories.md").read_text())

# %% [markdown]
# ## The real thing
#
# ```sh
# yurii prepare tinystories --out data/tinystories
# yurii suite --preset tinystories-small --data data/tinystories --rules paper --out tinystories
# yurii report tinystories --paper --out report
# ```
#
# [Reproducing the paper](../docs/reproducing.md) lists every table and figure with its runs and cost.
