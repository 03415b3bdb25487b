"""Files that others may have written: limits, forms, and one clear line."""

from __future__ import annotations

import gzip
import json
import os
import time
import tracemalloc

import pytest

from yuriiformer.cli.parsing import read_settings
from yuriiformer.errors import ConfigError, RuleError, RunError, brief, whole_number
from yuriiformer.methods.references import load_rule
from yuriiformer.reading import (
    Each,
    count,
    file_name,
    gunzipped,
    one_of,
    parse_json,
    parse_toml,
    path_text,
    plain_text,
    problem_of,
    read_bytes,
    read_object,
)
from yuriiformer.sizes import MOST, size

FORM = {
    "step": count,
    "name": file_name,
    "kind?": one_of("a", "b"),
    "list": [{"x": float}],
    "table": Each((int, None)),
}
GOOD = {"step": 1, "name": "run", "list": [{"x": 1}], "table": {"a": None}, "more": [1]}


def test_data_of_the_right_form():
    assert problem_of(GOOD, FORM) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"step": -1}, "step must be a whole number of at least 0, not -1"),
        ({"step": True}, "step must be a whole number"),
        ({"step": 10**40}, "step must be a whole number of at least 0, not a number of 133 bits"),
        ({"name": "../x"}, "name must be the name of a file"),
        ({"name": "/tmp/x"}, "name must be the name of a file"),
        ({"name": ".."}, "name must be the name of a file"),
        ({"name": "a\x1b[31m"}, "name holds a control character"),
        ({"kind": ["a"]}, "kind must be one of a, b"),
        ({"list": [{"x": 1}, {}]}, "list[1].x is missing"),
        ({"list": {}}, "list must be a list, not {}"),
        ({"table": {"a": "b"}}, "table.a must be a whole number or null, not 'b'"),
        ({"table": 3}, "table must be an object"),
    ],
)
def test_what_is_wrong_is_named_by_its_key(change, said):
    assert said in problem_of({**GOOD, **change}, FORM)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[" * 100_000, "inside each other"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "inside each other"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "more than 64 bits"),
        (b'{"a": 99999999999999999999}', "more than 64 bits"),
        (b"{", "is damaged"),
        (b"\xff\x00", "is damaged"),
        (b"[1]", "holds no object"),
        (b"{}", "step is missing"),
    ],
)
def test_a_file_that_is_no_such_object_is_one_line(tmp_path, raw, said):
    path = tmp_path / "file.json"
    path.write_bytes(raw)
    with pytest.raises(RunError) as error:
        read_object(path, FORM, RunError)
    assert said in str(error.value)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def test_brackets_in_text_are_no_depth():
    text = json.dumps({"a": "[" * 500 + '"' + "{" * 500, "b": [[1]] * 200})
    assert parse_json(text)["b"] == [[1]] * 200


def test_a_pipe_a_device_a_folder_and_a_large_file_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 101)
    for name, said in (
        ("pipe", "no ordinary file"),
        (".", "directory"),
        ("large", "more than 100"),
    ):
        with pytest.raises(OSError, match=said):
            read_bytes(tmp_path / name, 100)
    with pytest.raises(OSError, match="no ordinary file"):
        read_bytes(tmp_path / "/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before  # nothing stays open
    for read in (load_rule, read_settings):
        with pytest.raises((RuleError, ConfigError), match="no ordinary file"):
            read(tmp_path / "pipe")


def test_packed_data_are_unpacked_up_to_a_limit():
    packed = gzip.compress(b"x" * 10_000_000)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        gunzipped(packed, 1000)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    assert gunzipped(gzip.compress(b"abc")) == b"abc"
    with pytest.raises(EOFError):
        gunzipped(packed[:100], 10**9)


def test_a_rule_file_of_dotted_keys_takes_no_memory(tmp_path):
    path = tmp_path / "rule.toml"
    for text, said in (
        ("a" + ".a" * 50_000 + " = 1", "a key has more than"),
        ("a = " + "[" * 5000, "inside each other"),
        ("# " + "x" * 200_000, "more than 131,072 bytes"),
    ):
        path.write_text(text)
        tracemalloc.start()
        with pytest.raises(RuleError, match=said):
            load_rule(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
        tracemalloc.stop()


@pytest.mark.parametrize("sign", ["a", "-", "a ", "a\t"])
def test_a_long_text_in_a_rule_file_takes_no_time(sign):
    """Looking for dotted keys once took minutes: its time grew with the square of the length."""
    begin = time.process_time()
    assert parse_toml(f"note = '{sign * 60_000}'".encode())["note"] == sign * 60_000
    assert time.process_time() - begin < 2


def test_a_rule_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "rule.toml"
    path.write_bytes(b'\xef\xbb\xbfequations = "X = X + attn(X) + mlp(X)"\n')
    assert load_rule(path).name == "rule"


def test_paths_and_labels():
    for value in ("", "a\0b", 3, None):
        assert problem_of(value, path_text)
    for value in ("a\x1b]0;x\x07", "\x00", "\x9b31m"):
        assert problem_of(value, plain_text)
    assert not problem_of("Nesterov+Lie–Trotter, β\n", plain_text)


@pytest.mark.parametrize("name", MOST)
def test_sizes_have_limits(name):
    assert size(name, MOST[name]) == MOST[name]
    for value in (MOST[name] + 1, 10**30, 10**6000, "3", 0, None, True, 1.5):
        with pytest.raises(ConfigError, match=f"^{name} must"):
            size(name, value)


def test_any_value_can_be_shown():
    for value in (10**6000, [10**6000], "x" * 10**6, {"a": object()}):
        assert len(brief(value)) <= 60
    with pytest.raises(ConfigError, match="at most 64 bits, not 19,932"):
        whole_number("steps", 10**6000)
