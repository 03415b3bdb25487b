# %% [markdown]
# # From one GPU to a cluster
#
# The same configuration trains on one process, on several, and on a cluster. What changes is only who does which
# part of a step. This tutorial shows it with processes on a CPU; on GPUs the commands are the same. (The package has
# not been run on GPUs yet: start with `python benchmarks/gpu_smoke.py`.)

# %%
import subprocess
import sys
from pathlib import Path

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.data.sources import Tales
from yuriiformer.runs.metrics import read_metrics

work = Path("cluster")
work.mkdir(exist_ok=True)

# %% [markdown]
# ## Plan first
#
# How much memory does a device need, and how long does it take? No run is needed to know.

# %%
plan = "plan --preset openwebtext-small --rule nesterov-lie-trotter --device h200 --gpus 8"
assert main(plan.split()) == 0

# %% [markdown]
# ## One process

# %%
yf.prepare(Tales(300, seed=0), work / "tales", tokenizer="bpe:512")
config = yf.preset("tales-tiny", "nesterov-lie-trotter").with_(
    steps=8, eval_every=4, n_layer=2, d_model=32, n_head=2
)
yf.train(config, work / "tales", work / "one")

# %% [markdown]
# ## Two processes
#
# torchrun starts them. A step has the same sequences however many processes there are; each takes a share. So the
# losses are the same up to rounding.

# %%
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
command += ["-m", "yuriiformer", "train", "--data", str(work / "tales"), "--out", str(work / "two")]
command += ["--config", str(work / "one/config.json")]
done = subprocess.run(command, capture_output=True, text=True, check=False)
assert done.returncode == 0, done.stderr[-2000:]

one, two = (read_metrics(work / name / "metrics.jsonl") for name in ("one", "two"))
for a, b in zip(one, two, strict=True):
    if "val_loss" in a:
        print(a["step"], round(a["val_loss"], 5), round(b["val_loss"], 5))
        assert abs(a["val_loss"] - b["val_loss"]) < 1e-3

# %% [markdown]
# ## Stopping, resuming, another number of processes
#
# A run that was stopped resumes from its last checkpoint. It may resume with another number of processes: this one
# began with two and continues with one.

# %%
longer = f"train --out {work}/two --resume --steps 12 --allow-changed steps"
assert main(longer.split()) == 0
assert read_metrics(work / "two/metrics.jsonl")[-1]["step"] == 12

# %% [markdown]
# ## A node with 8 GPUs, and a cluster
#
# ```sh
# torchrun --nproc-per-node 8 -m yuriiformer train --preset openwebtext-small --data owt --out run
# ```
#
# Many runs at a time on one node, each on its own GPU:
#
# ```sh
# yurii suite --preset openwebtext-small --data owt --rules paper --jobs 8 --gpus 0,1,2,3,4,5,6,7 --out suite
# ```
#
# On a Slurm cluster submitit submits each run as a job. A job that reaches its time limit gets SIGUSR1, saves and
# is queued again:
#
# ```sh
# yurii suite --preset openwebtext-small --data owt --rules paper --executor submitit --out suite
# ```
#
# [Training](../docs/training.md#several-processes) has the details, [planning](../docs/planning.md) the costs.
