"""Checkpoints that are written while the training continues."""

from __future__ import annotations

import threading
import time

import pytest

from tests.training.runs import SECONDS, StopAt, StopRun, small, tales
from yuriiformer.model import tensor_files
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.training.session import train


def test_it_is_of_the_step_it_was_begun_at_and_is_completed(tmp_path, monkeypatch):
    """The first file is held up until two more steps are done and the run ends with an error. Its
    tensors are those of a run that waits for each checkpoint."""
    files, going = ("model.safetensors", "optimizer.safetensors"), threading.Event()
    real = tensor_files.save_file

    def slow(*given):
        if threading.current_thread() is not threading.main_thread():
            assert going.wait(SECONDS)
            time.sleep(0.2)  # a run that did not wait would have ended by now
        real(*given)

    class GoAndStopAt(StopAt):
        def record(self, record):
            if record["step"] == self.step:
                going.set()
            super().record(record)

    monkeypatch.setattr(tensor_files, "save_file", slow)
    found = {}
    for beside in (False, True):
        out = tmp_path / str(beside)
        config = small(eval_every=0, save_every=3, save_beside=beside)
        with pytest.raises(StopRun):
            train(config, tales(), out, listener=lambda *_: GoAndStopAt(5))
        last = read_checkpoint(out / "checkpoints" / "last")
        found[beside] = [last.step, *((last.folder / name).read_bytes() for name in files)]
    assert found[True] == found[False]
    assert found[True][0] == 3
