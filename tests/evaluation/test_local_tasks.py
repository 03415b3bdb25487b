"""The protocol itself: what is asked, of which items, and what stand-in models score."""

from __future__ import annotations

import math
import re
import shutil
import socket
from fractions import Fraction

import pytest
import torch

from tests.data.shared import SHARED
from tests.evaluation.items import ARC, HELLASWAG, byte_model, made_up, needs_tasks, read, real
from tests.model.tiny import tiny
from yuriiformer.data.tokenizers import GPT2, Bytes, Tokenizer, padded
from yuriiformer.errors import ConfigError, DataError
from yuriiformer.evaluation.local_tasks import PAPER_TASKS, TaskSpec, local_task, parse_tasks

pytest.importorskip("lm_eval", reason="the harness is not installed")

from lm_eval.api.model import LM

from yuriiformer.evaluation.harness import YuriiLM
from yuriiformer.evaluation.tasks import run_tasks


class Knowing(LM):
    """Gives the right answer the highest probability; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = []

    def loglikelihood(self, requests):
        self.asked += requests
        return [(-1.0 if each.idx == right(each.doc) else -1e5, False) for each in requests]

    def loglikelihood_rolling(self, requests):
        raise NotImplementedError

    def generate_until(self, requests):
        raise NotImplementedError


def right(doc: dict) -> int:
    if "endings" in doc:
        return int(doc["label"])
    return doc["choices"]["label"].index(doc["answerKey"])


# What the harness asks, longhand -----------------------------------------------------------------


def clean(text: str) -> str:
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def question(item: dict) -> str:
    if "endings" in item:
        context = f"{item['ctx_a']} {item['ctx_b'].capitalize()}"
        return clean(f"{item['activity_label']}: {context}")
    return f"Question: {item['question']}\nAnswer:"


def choices(item: dict) -> list[str]:
    if "endings" in item:
        return [clean(ending) for ending in item["endings"]]
    return item["choices"]["text"]


def solved(item: dict) -> str:
    return f"{question(item)} {choices(item)[right(item)]}"


def uniform_scores(items: list[dict], tokenizer: Tokenizer) -> tuple[Fraction, Fraction]:
    """acc and acc_norm of a model to which every token is equally likely: fewest tokens win, or
    fewest tokens a character, the first among equals."""
    plain = normed = 0
    for item in items:
        texts = [question(item), *(f"{question(item)} {each}" for each in choices(item))]
        before, *after = map(len, tokenizer.encode_batch(texts))
        costs = [count - before for count in after]
        ratios = [Fraction(c, len(t)) for c, t in zip(costs, choices(item), strict=True)]
        plain += costs.index(min(costs)) == right(item)
        normed += ratios.index(min(ratios)) == right(item)
    return Fraction(plain, len(items)), Fraction(normed, len(items))


def check_uniform(data, tokenizer: Tokenizer, tasks, context: int) -> None:
    sizes = {"d_model": 4, "n_head": 1, "n_layer": 1, "context": context}
    sizes |= {"vocab_size": padded(tokenizer.vocab_size), "valid_vocab": tokenizer.vocab_size}
    model = tiny(**sizes)
    with torch.no_grad():
        model.token_table.zero_()
    for spec, result in run_tasks(YuriiLM(model, tokenizer), parse_tasks(tasks), tasks_data=data):
        items = read(data / (HELLASWAG if spec.name == "hellaswag" else ARC[2]))
        plain, normed = uniform_scores(items, tokenizer)
        scores = result["scores"][spec.name]
        assert scores["acc"]["value"] == float(plain)
        assert scores["acc_norm"]["value"] == float(normed)
        spread = math.sqrt(float(normed * (1 - normed)) / (len(items) - 1))
        assert scores["acc_norm"]["stderr"] == pytest.approx(spread)
        assert result["items"] == {spec.name: len(items)}


def test_a_uniform_model_scores_what_lengths_imply(tmp_path):
    data = made_up(tmp_path, items=30)
    check_uniform(data, Bytes(), ["hellaswag@2", "hellaswag", "arc_easy@3", "arc_easy"], 220)


@needs_tasks
@pytest.mark.slow
def test_a_uniform_model_on_real_items(tmp_path):
    check_uniform(real(tmp_path, 200), GPT2(), PAPER_TASKS, 200)


def test_a_model_that_knows_scores_all(tmp_path):
    data = made_up(tmp_path, items=30)
    for spec, result in run_tasks(Knowing(), parse_tasks(PAPER_TASKS), tasks_data=data):
        scores = result["scores"][spec.name]
        assert (scores["acc"]["value"], scores["acc_norm"]["value"]) == (1, 1)
        assert scores["acc_norm"]["stderr"] == 0
        assert result["seeds"]["fewshot_random_seed"] == 1234


@needs_tasks
@pytest.mark.slow
def test_a_model_that_knows_scores_all_real_items():
    for spec in parse_tasks(PAPER_TASKS):
        limit = 200 if spec.shots else None
        [(_, result)] = run_tasks(Knowing(), [spec], tasks_data=SHARED, limit=limit)
        assert result["scores"][spec.name]["acc_norm"]["value"] == 1
        there = {"hellaswag": 10042, "arc_easy": 2376}[spec.name]
        assert result["items"][spec.name] == (limit or there)


@pytest.mark.parametrize("train", [False, True])
def test_prompts_and_examples(tmp_path, train):
    """Every prompt, rebuilt longhand; the scored item is never among its examples."""
    data = made_up(tmp_path, items=6, train=train)
    sources = {"hellaswag": HELLASWAG, "arc_easy": ARC[0]}
    if train:
        sources["hellaswag"] = "hellaswag/hellaswag_train.jsonl"
    for name, scored in (("hellaswag", HELLASWAG), ("arc_easy", ARC[2])):
        lm = Knowing()
        [(_, result)] = run_tasks(lm, [TaskSpec(name, 4)], tasks_data=data)
        pool = {solved(item) for item in read(data / sources[name])}
        asked: dict[str, set[str]] = {}
        for each in lm.asked:
            *examples, own = each.args[0].split("\n\n")
            assert len(set(examples)) == 4
            assert set(examples) <= pool
            assert not any(example.startswith(own) for example in examples)
            asked.setdefault(own, set()).add(each.args[1])
        items = read(data / scored)
        assert asked == {question(i): {f" {c}" for c in choices(i)} for i in items}
        excluded = name == "hellaswag" and not train
        assert ("the scored item left out" in result["examples_from"]) == excluded
        assert sources[name].split("/")[1] in result["examples_from"]
        assert result["split"] == ("validation" if name == "hellaswag" else "test")
        again = Knowing()
        list(run_tasks(again, [TaskSpec(name, 4)], tasks_data=data))
        assert [each.args for each in again.asked] == [each.args for each in lm.asked]


def test_examples_from_the_validation_file_of_arc(tmp_path):
    data = made_up(tmp_path)
    (data / ARC[0]).unlink()
    found = dict(run_tasks(Knowing(), parse_tasks(["arc_easy@2", "arc_easy"]), tasks_data=data))
    sources = [result["examples_from"] for result in found.values()]
    assert sources == ["ARC-Easy-validation.jsonl (validation split)", "none"]


def test_no_network(tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    data = made_up(tmp_path, items=30)
    assert len(list(run_tasks(Knowing(), parse_tasks(["paper"]), tasks_data=data, limit=3))) == 4


def test_a_limit(tmp_path):
    data = made_up(tmp_path, items=9)
    [(_, result)] = run_tasks(Knowing(), [TaskSpec("arc_easy", 0)], tasks_data=data, limit=4)
    assert (result["items"], result["items_there"]) == ({"arc_easy": 4}, {"arc_easy": 9})
    with pytest.raises(ConfigError, match="limit must be at least 1, not 0"):
        list(run_tasks(Knowing(), [TaskSpec("arc_easy", 0)], tasks_data=data, limit=0))


def test_names_of_tasks():
    assert parse_tasks(["paper", "hellaswag@0", "piqa,arc_easy"]) == [
        TaskSpec("hellaswag", 10),
        TaskSpec("arc_easy", 25),
        TaskSpec("hellaswag", 0),
        TaskSpec("arc_easy", 0),
        TaskSpec("piqa"),
        TaskSpec("arc_easy"),
    ]
    for wrong in ("hellaswag@", "hellaswag@ten", "@5", "hellaswag@-1"):
        with pytest.raises(ConfigError, match="is no task"):
            parse_tasks([wrong])
    with pytest.raises(ConfigError, match="no task is named"):
        parse_tasks([","])


def test_files_that_are_missing_or_damaged(tmp_path):
    def refused(spec: TaskSpec, folder) -> str:
        with pytest.raises(DataError) as error:
            list(run_tasks(Knowing(), [spec], tasks_data=folder))
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "there is no folder" in refused(TaskSpec("hellaswag", 0), tmp_path / "none")
    data = made_up(tmp_path / "data")
    assert "no place for task 'piqa'" in refused(TaskSpec("piqa"), data)
    for name, spec in ((ARC[2], "arc_easy"), (HELLASWAG, "hellaswag")):
        broken = shutil.copytree(data, tmp_path / spec)
        (broken / name).write_text((broken / name).read_text() + "{half")
        assert f"{name}, line 7 is not JSON" in refused(TaskSpec(spec, 0), broken)
        (broken / name).write_text('{"label": 3}\n')
        assert "line 1 has no proper" in refused(TaskSpec(spec, 0), broken)
        (broken / name).write_text("\n")
        assert "has no items" in refused(TaskSpec(spec, 0), broken)
        (broken / name).unlink()
        assert f"{name} is missing" in refused(TaskSpec(spec, 0), broken)
    alone = made_up(tmp_path / "alone")
    for name in ARC[:2]:
        (alone / name).unlink()
    assert f"{ARC[0]} is missing" in refused(TaskSpec("arc_easy", 5), alone)
    assert local_task(TaskSpec("arc_easy", 0), alone).source == "none"


def test_an_answer_longer_than_the_context(tmp_path):
    data, lm = made_up(tmp_path), YuriiLM(byte_model(context=8), Bytes())
    with pytest.raises(ValueError, match="does not fit the model's context of 8"):
        list(run_tasks(lm, [TaskSpec("hellaswag", 0)], tasks_data=data))


def test_items_are_processed_once(tmp_path):
    config = local_task(TaskSpec("hellaswag", 0), made_up(tmp_path)).config()
    items = config["custom_dataset"]()["validation"]
    assert config["process_docs"](items) is config["process_docs"](items)
    assert config["process_docs"](items)[0]["query"].startswith("Number")
