"""The table of benchmarks/README.md is what results.json says, and its commands are there."""

from __future__ import annotations

import json
import os
import re

import pytest

from benchmarks import __main__ as command
from benchmarks import subjects
from benchmarks.measuring import SUBJECTS, MissingError, Row, Subject, fresh, take_turns, threads
from benchmarks.subjects import rounds_of
from benchmarks.table import (
    BEGIN,
    END,
    HERE,
    README,
    RESULTS,
    add_result,
    digits,
    measured,
    read_results,
    table,
    with_table,
)

ROUNDS = {"a": [2.0, 3.0, 8.0], "b": [1.0, 2.0, 2.0]}


def test_the_readme_has_the_table_of_the_results():
    text = (HERE / README).read_text(encoding="utf-8")
    assert text == with_table(text, read_results())
    assert text.index(BEGIN) < 40  # at the top


def test_every_command_of_the_table_is_there():
    shown = table(read_results())
    names = re.findall(r"`python -m benchmarks ([\w-]+)` \|$", shown, re.MULTILINE)
    assert len(names) == len(shown.splitlines()) - 2
    assert set(names) == set(SUBJECTS)
    for name in names:
        assert name in command.chosen([name])


def test_the_results_are_of_subjects_that_there_are():
    for name, found in read_results().items():
        for row in SUBJECTS[name].rows:
            values = row.values(found["rounds"])
            assert min(values) > 0, row
        assert found["took"] > 0
        assert found["machine"]["cores"]


def test_rows():
    row = Row("what", "against", ("a", "b"), "≥ 2")
    assert row.values(ROUNDS) == [2.0, 1.5, 4.0]
    assert row.figure(ROUNDS) == 2.0
    assert row.reached(ROUNDS) is True
    assert measured(row, ROUNDS) == "2.00 × (1.500–4.00)"
    pooled = Row("what", "against", ("a", "b"), "≤ 2.5", pooled=True)
    assert pooled.figure(ROUNDS) == 13 / 5
    assert measured(pooled, ROUNDS) == "2.60 × (1.500–4.00), missed"
    alone = Row("what", "–", ("b",), unit="s")
    assert alone.reached(ROUNDS) is None
    assert measured(alone, {"b": [12.34]}) == "12.3 s"
    assert [digits(value) for value in (1e-5, 0.5, 5, 1234)] == [
        "1.0e-05",
        "0.500",
        "5.00",
        "1,234",
    ]


def test_ways_take_turns():
    calls: list[str] = []
    ways = {name: lambda name=name: calls.append(name) for name in "ab"}
    found = take_turns(ways, 3, warm=2)
    assert "".join(calls) == "baabbaabba"
    assert {name: len(values) for name, values in found.items()} == {"a": 3, "b": 3}


def test_a_process_of_its_own():
    assert fresh(os.getpid) != os.getpid()
    assert fresh(os.getenv, "MARK", MARK="here") == "here"


def test_results_are_kept_one_by_one(tmp_path):
    (tmp_path / README).write_text(f"# Top\n\n{BEGIN}\nearlier\n{END}\n\nrest\n", encoding="utf-8")
    rounds = {"gd-lie-trotter": [100.0], "nesterov-lie-trotter": [105.0]}
    add_result(tmp_path, "tales", {"MB/s": [10.0, 12.0]}, 1.0)
    add_result(tmp_path, "kept", rounds, 2.0)
    found = read_results(tmp_path)
    assert list(found) == ["kept", "tales"]  # in the order of the table
    assert found["kept"]["rounds"] == rounds
    text = (tmp_path / README).read_text(encoding="utf-8")
    assert text.startswith("# Top\n")
    assert text.endswith(f"{END}\n\nrest\n")
    assert "earlier" not in text
    assert "| ≤ 1.10 × | 1.050 × | `python -m benchmarks kept` |" in text
    assert text.count("not measured") == sum(len(s.rows) for s in SUBJECTS.values()) - 2


def test_a_failure_does_not_stop_the_others(monkeypatch, capsys, tmp_path):
    def bad(*, quick: bool):
        raise AssertionError("scores differ")

    def missing(*, quick: bool):
        raise MissingError("no data here")

    row = Row("what", "–", ("x",), "≥ 5")
    measures = {"bad": bad, "missing": missing, "good": lambda *, quick: {"x": [1.0]}}
    fake = {name: Subject(name, (row,), measure) for name, measure in measures.items()}
    for module in (command, subjects):
        monkeypatch.setattr(module, "SUBJECTS", fake)
    assert command.main(["--quick", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "FAILED: scores differ" in said.out
    assert "not measured: no data here" in said.out
    assert "what, –: 1.000 ×\n" in said.out
    assert said.err == "failed: bad\n"
    assert not (tmp_path / RESULTS).exists()
    with pytest.raises(SystemExit, match="no subject 'none'"):
        command.main(["none"])


def test_results_are_plain_json():
    text = (HERE / RESULTS).read_text(encoding="utf-8") if (HERE / RESULTS).exists() else "{}"
    assert list(json.loads(text)) == [name for name in SUBJECTS if name in json.loads(text)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_runs(name):
    if name in ("vocabulary", "generation-1", "harness"):
        pytest.importorskip("transformers")
    with threads(1):
        found = rounds_of(name, quick=True)
    if isinstance(found, str):
        pytest.skip(found)
    for row in SUBJECTS[name].rows:
        assert row.figure(found) > 0
