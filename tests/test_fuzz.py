"""Damaged files and odd flags (`tests.fuzz`), a few and many."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import broken, fuzz, mutated, problem


def test_a_few_cases(tmp_path):
    assert fuzz(tmp_path, 30, seed=0) == []


@pytest.mark.slow
def test_many_cases(tmp_path):
    assert fuzz(tmp_path, 600, seed=1) == []


def test_mutations_differ_and_problems_are_seen():
    data = {"a": [1, {"b": "c"}], "d": None}
    chance = random.Random(0)
    found = [mutated(data, chance)[0] for _ in range(50)]
    assert data == {"a": [1, {"b": "c"}], "d": None}
    assert sum(repr(each) != repr(data) for each in found) > 45
    assert broken(b"{}", chance)[0] != b"{}"
    assert problem("Traceback", "")
    assert problem(2, "two\nlines")
    assert problem(2, "yurii: \x1b[31m")
    assert not problem(2, "yurii: one line\n")
    assert not problem(0, "")
