"""``yurii sample`` as a person uses it."""

from __future__ import annotations

import io
import json
import re
import shutil

import pytest

from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.cli.sample import Clock, Decoder
from yuriiformer.data.tokenizers import GPT2, Bytes
from yuriiformer.errors import YuriiError
from yuriiformer.runs.loading import open_model
from yuriiformer.training.session import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("sample") / "run"
    train(small(), tales(), out)
    return out


def sample(capsys, *arguments):
    code = main(["sample", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_text_after_the_prompt(run, capsys):
    words = (run, "--prompt", "Once upon", "--max-new-tokens", "20", "--seed", "3")
    code, said, _ = sample(capsys, *words)
    assert code == 0
    assert said.startswith("Once upon")
    assert sample(capsys, *words)[1] == said
    assert sample(capsys, *words[:-1], "4")[1] != said
    _, new, _ = sample(capsys, run, "--max-new-tokens", "5")
    assert new.strip()


def test_json_and_several(run, capsys):
    words = ("--prompt", "Once", "-n", "3", "--max-new-tokens", "40", "--temperature", "1")
    _, said, _ = sample(capsys, run, *words, "--json")
    made = json.loads(said)
    assert (made["prompt"], made["checkpoint"], len(made["samples"])) == ("Once", "best", 3)
    assert len({each["text"] for each in made["samples"]}) == 3
    tokenizer = open_model(run).tokenizer
    for each in made["samples"]:
        tokens = [t for t in each["tokens"] if t != tokenizer.end_of_text]
        assert tokenizer.decode(tokens) == each["text"]
    _, plain, _ = sample(capsys, run, *words)
    for number, each in enumerate(made["samples"], 1):
        assert f"Once{each['text']}" in plain
        assert number == 1 or f"--- {number}" in plain


def test_a_prompt_from_standard_input(run, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("There was"))
    assert sample(capsys, run, "--prompt", "-", "--max-new-tokens", "3")[1].startswith("There was")


def test_a_prompt_longer_than_the_context(run, capsys):
    code, _, error = sample(capsys, run, "--prompt", "word " * 40, "--max-new-tokens", "3")
    assert code == 0
    assert "the model sees the last part (its context is 32)" in error


def test_which_checkpoint(run, capsys):
    words = ("--json", "--max-new-tokens", "2")
    steps = {
        name: json.loads(sample(capsys, run, "--checkpoint", name, *words)[1])["step"]
        for name in ("best", "final", "last")
    }
    assert steps["final"] == steps["last"] == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--prompt", ""), "the prompt is empty"),
        (("--prompt", "\udcff"), "not text in UTF-8"),
        (("--repetition-penalty", "1e-40"), "from 0.01 to 100"),
        (("--temperature", "-1"), "temperature must be"),
        (("--top-p", "0"), "top_p must be above 0 and at most 1"),
        (("--top-p", "1.1"), "top_p"),
        (("--top-k", "0"), "top_k"),
        (("-n", "0"), "-n must be at least 1"),
        (("--max-new-tokens", "-2"), "max_new_tokens"),
        (("--data", "nowhere", "--checkpoint", "worst"), "worst"),
    ],
)
def test_bad_input_is_one_line(run, capsys, arguments, words):
    code, _, error = sample(capsys, run, *arguments)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1


def test_runs_that_cannot_be_sampled(run, tmp_path, capsys):
    from tests.training.corpora import tales as others

    assert "holds no model" in sample(capsys, tmp_path)[2]
    (tmp_path / "config.json").write_text('{"model_type": "yuriiformer"}')
    assert "has no model's configuration under 'yuriiformer'" in sample(capsys, tmp_path)[2]
    assert "MODEL" in sample(capsys)[2]
    assert "--data: there is no folder 'nosuch'" in sample(capsys, run, "--data", "nosuch")[2]
    assert "is one model" in sample(capsys, run / "checkpoints/best", "--checkpoint", "final")[2]
    shutil.copytree(run, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "checkpoints" / "final")
    assert (
        "no checkpoint 'final'; it has best, last"
        in (sample(capsys, tmp_path / "bare", "--checkpoint", "final")[2])
    )
    shutil.rmtree(tmp_path / "bare" / "checkpoints")
    assert "has no checkpoint yet" in sample(capsys, tmp_path / "bare")[2]
    shutil.copytree(run, tmp_path / "moved")
    saved = json.loads((tmp_path / "moved" / "config.json").read_text())
    saved["data"]["folder"] = str(tmp_path / "gone")
    (tmp_path / "moved" / "config.json").write_text(json.dumps(saved))
    assert sample(capsys, tmp_path / "moved")[0] == 0  # its tokeniser (bytes) needs no data
    with pytest.raises(YuriiError, match=r"are not in .*gone: say where with --data"):
        _ = open_model(tmp_path / "moved").store
    with pytest.raises(YuriiError, match="does not hold the data that"):
        _ = open_model(tmp_path / "moved", data=[others()]).store
    found = open_model(tmp_path / "moved", data=[tales()])
    assert found.store.folder == tales()


@pytest.mark.parametrize("tokenizer", [GPT2(), Bytes()], ids=["gpt2", "bytes"])
def test_characters_are_shown_when_they_are_whole(tokenizer):
    text = "naïve 🦊 深い — ok"
    decoder, shown = Decoder(tokenizer), []
    for token in tokenizer.encode_batch([text])[0]:
        shown.append(decoder.add(int(token)))
    assert "".join(shown) + decoder.rest() == text
    assert not any("\ufffd" in piece for piece in shown)


def test_bytes_of_no_character_are_shown_once():
    decoder = Decoder(Bytes())
    tokens = [0x80] * 9 + list("🦊".encode()) + [0x80, 0x41]
    shown = [decoder.add(token) for token in tokens]
    assert "".join(shown) + decoder.rest() == "\ufffd" * 9 + "🦊" + "\ufffd" + "A"


def test_statistics(run, capsys):
    words = (run, "--max-new-tokens", "6", "-n", "2", "--ignore-end")
    _, text, nothing = sample(capsys, *words)
    code, said, stats = sample(capsys, *words, "--stats")
    assert (code, said, nothing) == (0, text, "")
    assert re.fullmatch(r"first token after \d+ ms, then [\d,]+ tokens per second\n", stats)
    found = json.loads(sample(capsys, *words, "--stats", "--json")[1])["stats"]
    assert found["seconds_to_first_token"] > 0
    assert found["tokens_per_second"] > 0
    _, _, none = sample(capsys, run, "--max-new-tokens", "0", "--stats")
    assert none == "no token was generated\n"


def test_the_clock_counts_tokens_not_rows_that_have_ended():
    clock = Clock()
    columns = iter([[1, 2], [3, None], [4, None]])
    assert list(clock.watch(columns)) == [[1, 2], [3, None], [4, None]]
    assert clock.tokens == 2
