"""The run's folder: one owner at a time, nothing overwritten, damage told in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.training.runs import outcome, small, tales
from yuriiformer.cli.main import main
from yuriiformer.errors import RunError
from yuriiformer.runs.folder import RunFolder
from yuriiformer.training.session import train


def test_two_at_once_are_refused(tmp_path):
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.take(resume=False)
    with pytest.raises(RunError, match="another process is training into"):
        second.take(resume=True)
    first.close()
    second.take(resume=True)
    second.close()


def test_another_process_is_refused_until_this_one_is_killed(tmp_path):
    """The lock dies with its process, however that ends."""
    code = (
        "import sys, time; from yuriiformer.runs.folder import RunFolder; "
        "f = RunFolder(sys.argv[1]); f.take(resume=True); print('mine', flush=True); time.sleep(99)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "mine\n"
            with pytest.raises(RunError, match="another process"):
                RunFolder(tmp_path / "run").take(resume=True)
        finally:
            process.kill()
    folder = RunFolder(tmp_path / "run")
    folder.take(resume=True)
    folder.close()


class Intruder:
    """Tries to resume a run that is under way."""

    def __init__(self, out) -> None:
        self.out, self.refused = out, 0

    def record(self, record):
        with pytest.raises(RunError, match="another process is training into"):
            train(small(), tales(), self.out, resume=True)
        self.refused += 1

    def close(self):
        pass


def test_a_run_under_way_is_left_alone(tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    intruder = Intruder(out)
    train(small(steps=4), tales(), out, listener=lambda *_: intruder)
    train(small(steps=4), tales(), whole)
    assert intruder.refused == 5
    assert outcome(out) == outcome(whole)


def test_a_run_is_not_overwritten(tmp_path):
    out = tmp_path / "out"
    train(small(steps=4), tales(), out)
    before = outcome(out)
    with pytest.raises(RunError, match=r"holds a run already: add --resume.*another --out"):
        train(small(steps=4), tales(), out)
    assert outcome(out) == before
    assert train(small(steps=4), tales(), out, resume=True).outcome == "finished"
    assert outcome(out) == before  # finished before: nothing is done again


def test_odd_places(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="is not a folder"):
        RunFolder(tmp_path / "file").take(resume=False)
    with pytest.raises(RunError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run").take(resume=False)
    assert (tmp_path / "file").read_text() == "x"
    with pytest.raises(RunError, match=r"no run in .*: it has no config\.json"):
        RunFolder(tmp_path / "nowhere").read_config()


def test_what_is_written_is_read(tmp_path):
    folder = RunFolder(tmp_path)
    parts = {"config": {"x": 1}, "data": {"folder": "β"}, "resolved": {}}
    folder.write_config(parts)
    assert folder.read_config() == {**parts, "format": 1}


BROKEN = ["", "{", "[]", "3", "null", "{}", '{"format": 9}', '{"format": 1}', "\x00", "[" * 10**5]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:20] or "empty")
@pytest.mark.parametrize("data", [True, False])
def test_a_damaged_configuration_is_one_line(tmp_path, capsys, text, data):
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text(text)
    flags = ["--data", str(tales())] if data else []
    assert main(["train", "--resume", "--out", str(out), "--device", "cpu", *flags]) == 2
    said = capsys.readouterr().err
    assert said.startswith("yurii: ")
    assert said.count("\n") == 1
    assert "config.json" in said
    assert (out / "config.json").read_text() == text


@pytest.mark.parametrize("part", ["config", "data", "resolved"])
@pytest.mark.parametrize("instead", [None, 3, []])
def test_a_configuration_without_one_of_its_parts(tmp_path, capsys, part, instead):
    """Good JSON, but not a run's."""
    out = tmp_path / "out"
    train(small(steps=1, eval_every=0), tales(), out)
    data = json.loads((out / "config.json").read_text())
    data[part] = instead
    if instead is None:
        del data[part]
    (out / "config.json").write_text(json.dumps(data))
    with pytest.raises(RunError, match=r"config\.json") as error:
        train(small(steps=1, eval_every=0), tales(), out, resume=True)
    assert "\n" not in str(error.value)
    assert main(["train", "--resume", "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"format": 1, "x": "\xff\xfe"}')
    with pytest.raises(RunError, match=r"config\.json is damaged"):
        RunFolder(tmp_path).read_config()
