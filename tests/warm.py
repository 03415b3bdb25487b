"""What a warm process has imported before it is asked for anything."""

from __future__ import annotations

import torch
import torch._dynamo  # the first step of an optimiser does

import tests.launcher
import yuriiformer.cli.suite
import yuriiformer.cli.train
import yuriiformer.runs.loading  # commands import these when their work begins
import yuriiformer.training.resume
import yuriiformer.training.session

torch.set_num_threads(1)

__all__ = ["tests", "torch", "yuriiformer"]
