"""The store: checks what it opens, and opens nanoGPT's files too."""

from __future__ import annotations

import json

import numpy as np
import pytest

import yuriiformer as yf
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Files
from yuriiformer.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(f"story number {i}" for i in range(200)))
    source = Files((tmp_path / "a.txt",))
    prepare(source, tmp_path / "data", Settings("bytes", val_fraction=0.1))
    return tmp_path / "data"


def test_sequences_are_windows_of_the_file(folder):
    store = yf.TokenStore.open(folder)
    order = yf.BatchOrder(len(store.train), context=16, sequences=8, seed=0)
    starts = order.starts(3)
    inputs, targets = store.sequences("train", starts, 16)
    assert inputs.shape == targets.shape == (8, 16)
    assert inputs.dtype == targets.dtype == np.int64
    for row, start in enumerate(starts):
        assert inputs[row].tolist() == store.train[start : start + 16].tolist()
        assert targets[row].tolist() == store.train[start + 1 : start + 17].tolist()


def test_nanogpts_own_files(tmp_path):
    for split in ("train", "val"):
        np.arange(100, dtype=np.uint16).tofile(tmp_path / f"{split}.bin")
    store = yf.TokenStore.open(tmp_path)
    assert store.meta is None
    assert store.train[42] == 42
    for use in (lambda: store.vocab_size, store.tokenizer):
        with pytest.raises(DataError, match=r"has no meta\.json"):
            use()
    store.check_model(50304)  # nothing is known, so nothing is wrong


DAMAGE = {
    "cut": (lambda f: _cut(f / "train.bin", 10), "it was cut or altered"),
    "cut in mid-token": (lambda f: _cut(f / "val.bin", 1), "odd number of bytes"),
    "longer": (lambda f: _append(f / "val.bin", b"xx"), "it was cut or altered"),
    "gone": (lambda f: (f / "val.bin").unlink(), "there is no val.bin"),
    "no JSON": (lambda f: (f / "meta.json").write_text("{"), "meta.json is damaged"),
    "other JSON": (lambda f: (f / "meta.json").write_text("{}"), "meta.json is damaged"),
    "a list": (lambda f: (f / "meta.json").write_text("[1]"), "meta.json is damaged"),
    "a count that is text": (
        lambda f: _edit(f / "meta.json", empty_documents="3"),
        "meta.json is damaged",
    ),
    "no source": (lambda f: _edit(f / "meta.json", source=None), "meta.json is damaged"),
    "later format": (lambda f: _edit(f / "meta.json", format=2), "has format 2"),
}


def _cut(path, size):
    path.write_bytes(path.read_bytes()[:-size])


def _append(path, data):
    path.write_bytes(path.read_bytes() + data)


def _edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_clear_error(folder, damage):
    harm, reason = DAMAGE[damage]
    harm(folder)
    with pytest.raises(DataError) as caught:
        yf.TokenStore.open(folder)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_changed_byte_is_found_by_verifying(folder):
    data = bytearray((folder / "train.bin").read_bytes())
    data[100] ^= 1
    (folder / "train.bin").write_bytes(data)
    yf.TokenStore.open(folder)
    with pytest.raises(DataError, match=r"train\.bin was altered"):
        yf.TokenStore.open(folder, verify=True)


def test_no_folder(tmp_path):
    with pytest.raises(DataError, match="no prepared data in"):
        yf.TokenStore.open(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no prepared data"):
        yf.TokenStore.open(tmp_path / "empty")


def test_a_model_of_another_tokeniser_is_refused(folder):
    store = yf.TokenStore.open(folder)
    store.check_model(257)
    store.check_model(320)
    store.check_model(320, valid_vocab=257)
    with pytest.raises(DataError, match=r"50304 token ids, but .* tokeniser bytes, which has 257"):
        store.check_model(50304)


def test_an_empty_validation_split_opens(tmp_path):
    (tmp_path / "a.txt").write_text("one story")
    prepare(Files((tmp_path / "a.txt",)), tmp_path / "data", Settings("bytes", val_fraction=0))
    assert len(yf.TokenStore.open(tmp_path / "data", verify=True).val) == 0


def test_sequences_that_are_not_there(folder):
    store = yf.TokenStore.open(folder)
    last = len(store.train) - 17
    store.sequences("train", np.array([0, last]), 16)
    for start in (-1, last + 1, 10**9):
        with pytest.raises(DataError, match=f"cannot begin at {start}"):
            store.sequences("train", np.array([0, start]), 16)
    with pytest.raises(DataError, match="no split 'validation'"):
        store.sequences("validation", np.array([0]), 16)
