"""``metrics.jsonl``: every record once, also after kills and on full disks."""

from __future__ import annotations

import json
import math
import os

import pytest

from yuriiformer.errors import RunError
from yuriiformer.reading import Each, count, number_or_text, problem_of
from yuriiformer.runs import metrics as module
from yuriiformer.runs.metrics import MetricsFile, cut_metrics, read_metrics

RECORDS = [{"step": step, "loss": 1.0 / (step + 1), "rule": "β"} for step in range(5)]


@pytest.fixture
def path(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for record in RECORDS:
        assert file.add(record) is None
    file.sync()
    file.close()
    return tmp_path / "metrics.jsonl"


def test_what_is_added_is_read(path):
    assert read_metrics(path) == RECORDS
    assert path.read_text(encoding="utf-8").count("\n") == len(RECORDS)
    again = MetricsFile(path)
    again.add({"step": 5})
    again.close()
    assert read_metrics(path) == [*RECORDS, {"step": 5}]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (' {"step": 3}', True),  # what json.loads accepts
        ('{"step": 3} \t', True),
        ('{"step": 3, "loss": NaN}', True),
        ('{"step": 3} {"step": 4}', False),
        ('{"step": 3}]', False),
        ('{"step": 3', False),
        ('{"step": ', False),
        ('{"step": -1}', False),
        ('{"step": 3, "lr": {"muon": "x"}}', False),
        ("[3]", False),
        ("3", False),
        ("", False),
    ],
)
def test_lines_as_others_may_write_them(path, line, read):
    whole = path.read_text(encoding="utf-8")
    path.write_text(line + "\n" + whole, encoding="utf-8")
    if read:
        assert read_metrics(path)[0]["step"] == 3
    else:
        with pytest.raises(RunError, match="line 1 is damaged"):
            read_metrics(path)


def test_a_record_is_readable_as_soon_as_it_is_added(tmp_path):
    """No buffer that a kill could empty."""
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.add(RECORDS[0])
    assert read_metrics(file.path) == RECORDS[:1]
    file.close()


@pytest.mark.parametrize("cut", range(1, 39))
def test_a_cut_last_line_is_left_out(path, cut):
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    assert cut < last
    path.write_bytes(whole[:-cut])
    assert read_metrics(path) == RECORDS[:-1]
    cut_metrics(path, 10)
    assert path.read_bytes() == whole[:-last]  # so that the next record begins a line


def test_a_line_cut_within_a_letter(path):
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("β".encode()) + 1])
    assert read_metrics(path) == RECORDS[:-1]


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"loss": 1}', '{"step": "1"}', "\x00\x00", "\n"])
def test_a_damaged_line_in_the_middle_is_named(path, line):
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = line.strip("\n")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 3 is damaged: .*--resume") as error:
        read_metrics(path)
    assert "\n" not in str(error.value)
    assert cut_metrics(path, 10) == [3]
    assert read_metrics(path) == [*RECORDS[:2], *RECORDS[3:]]


@pytest.mark.parametrize("step", [-1, 0, 2, 4, 9])
def test_steps_that_will_be_done_again_are_dropped(path, step):
    cut_metrics(path, step)
    assert read_metrics(path) == [r for r in RECORDS if r["step"] <= step]
    assert [p.name for p in path.parent.iterdir()] == ["metrics.jsonl"]


def test_there_may_be_no_file_yet(tmp_path):
    cut_metrics(tmp_path / "metrics.jsonl", 3)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_what_is_not_finite_is_text(path):
    record = {"step": 5, "loss": math.nan, "lr": {"muon": math.inf}, "beta": [-math.inf, 1.0]}
    file = MetricsFile(path)
    file.add(record)
    file.close()

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    last = json.loads(path.read_text().splitlines()[-1], parse_constant=refuse)
    assert last == {"step": 5, "loss": "nan", "lr": {"muon": "inf"}, "beta": ["-inf", 1.0]}
    assert math.isnan(float(last["loss"]))
    assert read_metrics(path)[-1] == last


class Disk:
    """A file on a disk with room for so many bytes more."""

    def __init__(self, file, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(28, "No space left on device")
        taken = self.file.write(data[: self.room])
        self.room -= taken
        return taken

    def fileno(self) -> int:
        return self.file.fileno()

    def close(self) -> None:
        self.file.close()


@pytest.mark.parametrize("room", [0, 1, 30, 60, 100])
def test_a_full_disk_loses_no_record(tmp_path, room):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file._file = disk = Disk(file._file, room)
    problems = [file.add(record) for record in RECORDS[:3]]
    assert problems[-1] is not None
    assert "metrics.jsonl cannot be written" in problems[-1]
    with pytest.raises(RunError, match=r"metrics\.jsonl could not be written: .*No space left"):
        file.sync()
    whole = problems.index(next(filter(None, problems)))
    assert read_metrics(file.path) == RECORDS[:whole]  # a reader sees no half
    disk.room = 10_000
    for record in RECORDS[3:]:
        assert file.add(record) is None
    file.sync()
    file.close()
    assert read_metrics(file.path) == RECORDS


def test_syncing_reaches_the_disk(path, monkeypatch):
    synced = []
    monkeypatch.setattr(module.os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    file = MetricsFile(path)
    file.sync()
    file.close()
    assert synced == [path.stat().st_ino]


def test_records_have_a_form():
    """Any value in the place of any part."""
    form = {
        "step": count,
        **dict.fromkeys(("loss?", "val_loss?", "exact_loss?"), number_or_text),
        **dict.fromkeys(("text_losses?", "lr?", "timing?"), Each(number_or_text)),
        "coefficients?": Each([number_or_text]),
    }
    good = {"step": 1, "loss": 2.5, "val_loss": "nan", "lr": {"muon": 0.1}, "timing": {}}
    good["coefficients"] = {"mu": [0.9, "inf"]}
    odd = [None, True, 0, -1, 2.5, 2**70, "a", "", [], [1], [{"x": 1}], {}, {"x": 1}, {"x": "a"}]
    odd += [{"x": [1]}, {"x": [None]}, {"x": {"y": 1}}]
    data = [good, *odd, *({**good, key.rstrip("?"): value} for key in form for value in odd)]
    data += [{name: good[name] for name in good if name != key} for key in good]
    told = [isinstance(each, dict) and problem_of(each, form) == "" for each in data]
    assert [module._is_record(each) for each in data] == told
    assert 1 < sum(told) < len(told)
