"""The plan's text: numbers where they belong, columns that line up, no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import yuriiformer as yf
from yuriiformer.config import Recipe, TrainConfig
from yuriiformer.costs.flops import ModelWork, Work
from yuriiformer.costs.run import Parameters
from yuriiformer.planning.devices import Device
from yuriiformer.planning.hours import Against, BlockCosts, Hours, MoreSeconds
from yuriiformer.planning.plan import DeviceFit, Disk, Plan
from yuriiformer.planning.text import aligned, device_table, plan_page, plan_table
from yuriiformer.training.memory import Passes, StepMemory, Update

GIB = 2**30


def plan() -> Plan:
    """With round numbers, so that what is printed can be said beforehand."""
    rule = yf.Rule("mine", label="Mine", equations="X = X + attn(X)\nX = X + mlp(X)")
    model = yf.ModelConfig(rule, n_layer=2, n_head=4, d_model=64, vocab_size=1000, context=128)
    work = Work(2e6, 4e6)
    blocks = BlockCosts(1e12, GIB, GIB, GIB / 2, 0.004, 0.003)
    return Plan(
        config=TrainConfig(model, Recipe(steps=1000, sequences=16)),
        device=Device("d", "Device", 16e9, 9e11, 1e13, 1.25e14),
        dtype=torch.bfloat16,
        gpus=2,
        shards=1,
        micro_batch=8,
        epochs=1.5,
        parameters=Parameters(64_000, 8_192, 0, 32_768, 65_536, 320, 0, 0, 162_624, ()),
        extra_parameters=0,
        work=ModelWork(work, work, work, work, 0.0, 1234.0),
        memory=StepMemory(
            Update(GIB, GIB, 2 * GIB, 6 * GIB), Passes(3 * GIB, (5.25 * GIB, 4 * GIB, 4 * GIB))
        ),
        fit=DeviceFit(True, 14, None),
        time=Hours(
            0.4, False, 7000.0, 200.0, MoreSeconds(720.0, 180.0), 292.6, True, GIB / 2, GIB / 4
        ),
        against=Against("base", blocks, blocks, 0.0, 0.5, -0.051, 0.25, 0.1),
        disk=Disk(2 * GIB, GIB, 1_365_333),
    )


def line(text: str, name: str) -> str:
    return next(each for each in text.splitlines() if each.strip().startswith(name))


def test_the_page():
    text = plan_page(plan())
    assert "2 hours" not in text
    assert "2 (2 h 00 min), of which 3:20 to validate" in line(text, "hours")
    assert "170,816" in line(text, "all")
    assert "7.25 GiB   in the passes" in line(text, "peak")
    assert "2 x Device: 16 GB, 900 GB/s, 125 TFLOP/s in bfloat16" in line(text, "device")
    assert "+50.0 %" in line(text, "bytes moved, as it is")
    assert "-5.1 %" in line(text, "bytes moved, fused")
    assert "2.00 GiB for 2.00 GiB" in line(text, "bytes moved, as it is")
    assert "1,365,333 tokens" in line(text, "data")
    assert "coefficients  " not in text  # there are none
    assert "+0.05 h fused, +0.2 h as it is" in line(text, "beside the hours")
    assert "0.50 GiB of gradients, 0.25 GiB by Muon" in line(text, "exchanged")
    assert "do not divide" in line(text, "note")
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        ((True, 14, None), "yes; the largest micro-batch that does is 14"),
        (
            (False, 5, 9),
            "no; the largest micro-batch that does is 5; with --recompute it fits",
        ),
        ((False, 0, 3), "no, not even 1 sequence; with --recompute 3"),
        ((False, 0, 0), "no, not even 1 sequence; with --recompute none"),
        ((False, 0, None), "no, not even 1 sequence"),
    ],
)
def test_whether_it_fits(fit, words):
    given = replace(plan(), fit=DeviceFit(*fit))
    assert line(plan_page(given), "fits").split(maxsplit=1)[1] == words


def test_what_is_measured_and_what_is_not_known():
    given = plan()
    given = replace(
        given,
        gpus=1,
        epochs=None,
        disk=replace(given.disk, tokens=None),
        time=replace(given.time, measured=True, reduced_a_step=0.0),
    )
    text = plan_page(given)
    assert "measured here" in text
    assert "not known: say --tokens" in text
    assert "epochs" not in text
    assert "exchanged" not in text


def test_the_parts_sum_to_the_peak():
    """What is shown of the memory adds up, wherever the peak is."""
    given = plan()
    text = plan_page(given)
    sizes = [float(line(text, name).split()[-2]) for name in ("weights", "gradients", "optimiser")]
    sizes += [float(line(text, name).split()[-2]) for name in ("kept for", "temporary")]
    assert sum(sizes) == 7.25
    passes = given.memory.passes
    later = replace(given, memory=replace(given.memory, passes=replace(passes, held=False)))
    assert "not yet there at the peak" in line(plan_page(later), "gradients")
    update = replace(given.memory.update, peak=8 * GIB)
    text = plan_page(replace(given, memory=replace(given.memory, update=update)))
    assert "8.00 GiB   in the update" in line(text, "peak")
    assert "not yet there" not in text
    assert "kept for backward" not in text


def test_the_table_lines_up():
    other = plan()
    rule = yf.Rule("another-rule", equations="X = X + attn(X)\nX = X + mlp(X)")
    model = replace(other.config.model, rule=rule)
    other = replace(other, config=replace(other.config, model=model), fit=DeviceFit(False, 0, None))
    lines = plan_table([plan(), other]).splitlines()
    head, first, second = lines[:3]
    assert len(first) == len(second) == len(head)
    assert first.split()[0] == "mine"
    assert "7.25 GiB!" in second
    assert "none" in second
    for title in ("largest", "hours", "fused"):  # numbers end where their title does
        end = head.index(title) + len(title)
        assert first[end - 1] != " "
        assert first[end : end + 2].strip() == ""


def test_devices_without_bfloat16():
    text = device_table([Device("old", "Old", 16e9, 3.2e11, 8.1e12)])
    assert text.splitlines()[1].split() == [
        "old",
        "Old",
        "16",
        "GB",
        "320",
        "GB/s",
        "none",
        "8.1",
        "TFLOP/s",
    ]


def test_wide_letters_keep_their_columns():
    assert aligned([("ab", "1"), ("界", "22")]) == ["ab   1", "界  22"]


def test_without_torch():
    code = "import sys, yuriiformer.planning.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
