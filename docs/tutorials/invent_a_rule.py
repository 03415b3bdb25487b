# %% [markdown]
# # Invent a rule and test it honestly
#
# You have an idea for a block: let the MLP also see what attention did in the layers before. This tutorial writes the
# idea as a rule, looks at it, tries it on a function about which everything is known, and then compares it with what
# it must beat: not only gradient descent, but also a control.
#
# Everything runs on a CPU in about a minute. The models are tiny, so the numbers here say nothing about the idea.

# %%
from pathlib import Path

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.data.sources import Tales
from yuriiformer.methods.drawing.listing import full_text

work = Path("invented")
work.mkdir(exist_ok=True)


def yurii(command: str) -> None:
    """A command, as on the command line."""
    assert main(command.split()) == 0


# %% [markdown]
# ## The rule
#
# A rule is a TOML file. `D` is read before it is written, so it is carried from layer to layer, and the file says
# how it starts. `kappa` is no known name, so it is declared: any real number, zero at the start. At zero the rule is
# plain gradient descent.

# %%
rule_file = work / "memory.toml"
rule_file.write_text('''
label = "Memory of attention"
equations = """
A = attn(X)
X = X + A
X = X + mlp(X + kappa * D)
D = beta * D + A
"""
[streams]
D = "zero"
[coefficients]
kappa = { range = "real", initial = 0.0 }
''')
rule = yf.load_rule(rule_file)
print(full_text(rule))

# %% [markdown]
# A mistake is named with its place. Try it:

# %%
try:
    yf.Rule("wrong", "X = X + atn(X)\nX = X + mlp(X)")
except yf.YuriiError as error:
    print(error)

# %% [markdown]
# ## On a quadratic
#
# With exact gradients as oracles a block is a linear map. The lab computes its rate, and runs it to check.

# %%
from yuriiformer.lab.setting import QuadraticLab
from yuriiformer.lab.results import quadratic_results
from yuriiformer.lab.text import lab_text

chosen = [rule, yf.rules["gd-lie-trotter"], yf.rules["nesterov-lie-trotter"]]
print(lab_text(quadratic_results(chosen, QuadraticLab(condition=10.0, steps=100))))

# %% [markdown]
# ## A study, written before the runs
#
# What would count as success? Write it down first. The arms: gradient descent, the new rule, and a **control**: the
# same rule with `beta` fixed at 0, so that the MLP sees attention's answer of one layer before and no longer memory.
# If the new rule beats gradient descent but not the control, it is not the memory that helps.

# %%
study = work / "study.toml"
study.write_text(f'''
title = "Does the MLP use a memory of attention?"
preset = "tales-tiny"
seeds = [0, 1]
baseline = "gd"
settings = {{ steps = 15, n_layer = 2, d_model = 32, n_head = 2 }}

[[arms]]
label = "gd"
rule = "gd-lie-trotter"

[[arms]]
label = "memory"
rule = "{rule_file.name}"

[[arms]]
label = "control"
rule = "{rule_file.name}+beta=0+fixed=beta"

[[hypotheses]]
claim = "The memory ends lower than gradient descent"
arm = "memory"
against = "gd"
direction = "lower"
difference = 0.005

[[hypotheses]]
claim = "The memory ends lower than its control"
arm = "memory"
against = "control"
direction = "lower"
difference = 0.005
''')
yf.prepare(Tales(300, seed=0), work / "tales", tokenizer="bpe:512")
yurii(f"suite --study {study} --data {work}/tales --out {work}/suite --jobs 2 --report")

# %% [markdown]
# ## What the seeds allow you to say
#
# The verdict is "supported", "contradicted" or "undecided". With two seeds and tiny models expect "undecided", and
# believe it. The page `invented/suite/report/report.html` has curves, coefficients and samples.

# %%
import json

found = json.loads((work / "suite/report/tables/results.json").read_text())
for hypothesis in found["hypotheses"]:
    print(hypothesis["verdict"], "–", hypothesis["claim"])
assert {h["verdict"] for h in found["hypotheses"]} <= {"supported", "contradicted", "undecided"}

# %% [markdown]
# ## Before you believe a result
#
# - Search learning rates for every arm with the same effort: `--grid muon_lr=0.01,0.02,0.04`.
# - Use more seeds; `yurii suite` with the same folder and more seeds runs only the new ones.
# - Use a larger model and real text. [Results](../docs/results.md) shows how far a CPU goes.
# - Read [why controls](../docs/controls.md).
