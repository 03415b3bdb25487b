"""The plan's text: numbers where they belong, columns that line up, no torch."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

from yuriiformer.planning.text import aligned, device_table, plan_page, plan_table


def plan() -> dict:
    work = {"forward": 2e6, "backward": 4e6}
    moved = {"flops": 1e12, "products_bytes": 2**30, "other_bytes": 2**30, "fused_bytes": 2**29,
             "eager_seconds": 0.004, "fused_seconds": 0.003}  # fmt: skip
    return {
        "rule": "mine",
        "label": "Mine",
        "model": {"n_layer": 2, "n_head": 4, "d_model": 64, "context": 128, "vocab_size": 1000,
                  "oracles": "paper"},
        "run": {"steps": 1000, "sequences": 16, "tokens_a_step": 2048, "tokens": 2_048_000,
                "epochs": 1.5, "gpus": 2, "micro_batch": 8, "precision": "bfloat16",
                "recompute": False},
        "device": {"name": "d", "label": "Device", "memory": 16e9, "usable": 12 * 2**30,
                   "reserve": {"share": 0.08, "fixed": 2**30}, "bandwidth": 9e11,
                   "float32": 1e13, "bfloat16": 1.25e14},
        "parameters": {"token_table": 64_000, "positions": 8_192, "start_tables": 0,
                       "attention": 32_768, "mlp": 65_536, "norms": 320, "coefficients": 0,
                       "frozen": 0, "paper": 162_624, "all": 170_816, "extra": 0},
        "flops": {"projections": work, "scores": work, "mlp": work, "output": work, "total": work,
                  "recomputed": 0.0, "elementwise": 1234.0, "optimizer_a_step": 1e9,
                  "training": 3e15, "validation": 1e13},
        "memory": {"micro_batch": 8, "weights": 2**30, "gradients": 2**30,
                   "gradients_at_peak": 2**30, "optimizer": 2**31,
                   "kept": 3 * 2**30, "temporary": 2**28, "peak": 7.25 * 2**30,
                   "in_passes": True, "fits": True,
                   "largest_micro_batch": 14, "largest_with_recompute": None},
        "time": {"mfu": 0.4, "measured": False, "training_seconds": 7000.0,
                 "validation_seconds": 200.0, "seconds": 7200.0, "tokens_a_second": 292.6,
                 "reduced_a_step": 2**29, "gathered_a_step": 2**28, "uneven": True,
                 "more_seconds": {"as_it_is": 720.0, "fused": 180.0}},
        "against": {"name": "base", "rule": moved, "baseline": moved, "extra_flops": 0.0,
                    "extra_bytes_eager": 0.5, "extra_bytes_fused": -0.051,
                    "extra_seconds_eager": 0.25, "extra_seconds_fused": 0.1},
        "disk": {"checkpoint": 2**31, "model": 2**30, "kept": 6 * 2**30, "needed": 9 * 2**30,
                 "tokens": 1_365_333, "data": 2 * 1_365_333},
    }  # fmt: skip


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
    assert "coefficients" not in text  # there are none
    assert "+0.05 h fused, +0.2 h as it is" in line(text, "beside the hours")
    assert "0.50 GiB of gradients, 0.25 GiB by Muon" in line(text, "exchanged")
    assert "do not divide" in line(text, "note")
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "yes; the largest micro-batch that does is 14"),
        ({"fits": False, "largest_micro_batch": 5, "largest_with_recompute": 9},
         "no; the largest micro-batch that does is 5; with --recompute it fits"),
        ({"fits": False, "largest_micro_batch": 0, "largest_with_recompute": 3},
         "no, not even 1 sequence; with --recompute 3"),
        ({"fits": False, "largest_micro_batch": 0, "largest_with_recompute": 0},
         "no, not even 1 sequence; with --recompute none"),
        ({"fits": False, "largest_micro_batch": 0}, "no, not even 1 sequence"),
    ],
)  # fmt: skip
def test_whether_it_fits(changes, words):
    given = plan()
    given["memory"].update(changes)
    assert line(plan_page(given), "fits").split(maxsplit=1)[1] == words


def test_what_is_measured_and_what_is_not_known():
    given = plan()
    given["time"]["measured"] = True
    given["disk"].update(data=None, tokens=None)
    given["run"].update(gpus=1, epochs=None)
    given["time"]["reduced_a_step"] = 0.0
    text = plan_page(given)
    assert "measured here" in text
    assert "not known: say --tokens" in text
    assert "epochs" not in text
    assert "exchanged" not in text


def test_the_parts_sum_to_the_peak():
    """What is shown of the memory adds up, wherever the peak is."""
    given = plan()
    parts = [given["memory"][key] for key in ("weights", "gradients", "optimizer", "kept")]
    assert sum(parts) + given["memory"]["temporary"] == given["memory"]["peak"]
    given["memory"].update(in_passes=False)
    text = plan_page(given)
    assert "in the update" in line(text, "peak")
    assert "not yet there" not in text
    given["memory"].update(in_passes=True, gradients_at_peak=0.0)
    assert "not yet there at the peak" in line(plan_page(given), "gradients")
    assert "kept for backward" not in text


def test_the_table_lines_up():
    other = copy.deepcopy(plan())
    other.update(rule="another-rule")
    other["memory"].update(fits=False, largest_micro_batch=0)
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
    text = device_table([{"name": "old", "label": "Old", "memory": 16e9, "bandwidth": 3.2e11,
                          "bfloat16": None, "float32": 8.1e12}])  # fmt: skip
    assert text.splitlines()[1].split() == [
        "old", "Old", "16", "GB", "320", "GB/s", "none", "8.1", "TFLOP/s"
    ]  # fmt: skip


def test_wide_letters_keep_their_columns():
    assert aligned([("ab", "1"), ("界", "22")]) == ["ab   1", "界  22"]


def test_without_torch():
    code = "import sys, yuriiformer.planning.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
