"""What the documentation shows is run here, as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard

import yuriiformer as yf
from tests.launcher import warm_suites
from tests.methods.worlds import World
from tests.model.tiny import memorise, tiny, tokens
from yuriiformer.data.tales import grammar as tales
from yuriiformer.model import oracles as registry

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


RULES = dict(
    zip(
        ("adams-bashforth", "adam-like", "per-channel"),
        blocks("docs/adding_a_rule.md", "toml"),
        strict=True,
    )
)


@pytest.fixture
def rule_file(tmp_path):
    def write(name: str) -> str:
        path = tmp_path / f"{name}.toml"
        path.write_text(RULES[name], encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("oracles", ["paper", "modern"])
@pytest.mark.parametrize("name", RULES)
def test_own_rules_train(rule_file, name, oracles):
    """Each in at most 15 lines; a model of it learns a small batch by heart."""
    assert len(RULES[name].strip().splitlines()) <= 15
    model = tiny(rule_file(name), oracles)
    assert model.config.rule.name == name
    losses = memorise(model, 40)
    assert losses[-1] < 0.5 * losses[0]


def run(rule: yf.Rule, world: World, layers: int, **streams: torch.Tensor):
    values = {**{n: s.initial for n, s in rule.coefficients.items()}, "gamma": 0.3}
    state = {"X": world.X, **streams}
    for _ in range(layers):
        state = yf.run_rule(rule, state, attn=world.attn, mlp=world.mlp, coefficients=values)
    return state


def test_adams_bashforth_longhand(rule_file):
    world, zero = World(0), torch.zeros(2, 5, 8, dtype=torch.float64)
    state = run(yf.load_rule(rule_file("adams-bashforth")), world, 3, G=zero)
    X, before = world.X, zero
    for _ in range(3):
        now = world.attn(X) + world.mlp(X)
        X = X + 0.3 * (now + (now - before) / 2)
        before = now
    torch.testing.assert_close(state["X"], X, rtol=0, atol=1e-12)


def test_adam_like_longhand(rule_file):
    world, zero = World(0), torch.zeros(2, 5, 8, dtype=torch.float64)
    state = run(yf.load_rule(rule_file("adam-like")), world, 3, M=zero, S=zero)
    X, first, second = world.X, zero, zero
    for _ in range(3):
        g = world.attn(X) + world.mlp(X)
        first = first.lerp(g, 1 - 0.9)
        second = second.lerp(g * g, 1 - 0.99)
        X = X + 0.3 * first / (second + 1e-3).sqrt()
    torch.testing.assert_close(state["X"], X, rtol=0, atol=1e-10)


def test_per_channel_is_the_variation_the_page_names(rule_file):
    page = (ROOT / "docs/adding_a_rule.md").read_text(encoding="utf-8")
    reference = re.search(r"`(nesterov-lie-trotter\+channel=mu,beta,gamma\S+)`", page)[1]
    own, varied = yf.load_rule(rule_file("per-channel")), yf.get_rule(reference)
    assert own.assigns == varied.assigns
    assert own.coefficients == varied.coefficients


def test_every_variation_the_page_names():
    page = (ROOT / "docs/adding_a_rule.md").read_text(encoding="utf-8")
    table = page.split("## Variations in one word")[1].split("##")[0]
    references = re.findall(r"^\| `(\S+)` \|", table, flags=re.MULTILINE)
    assert len(references) == 6
    for reference in references:
        model = tiny(reference)
        assert model(tokens(model)).isfinite().all()


def test_the_error_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = blocks("docs/adding_a_rule.md", "text")[0].strip()
    text = 'label = "x"\nequations = """\nX = X + atn(X)\nX = X + mlp(X)\n"""\n'
    Path("my_rule.toml").write_text(text)
    with pytest.raises(yf.YuriiError) as caught:
        yf.get_rule("my_rule.toml")
    assert str(caught.value) == shown


def test_the_third_partys_oracles(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    scope: dict = {"__name__": "third_party"}
    exec(blocks("docs/adding_an_oracle.md", "python")[0], scope)
    assert isinstance(scope["model"], yf.YuriiFormer)
    for rule in yf.rules:  # a new pair works with every rule at once
        model = tiny(rule, "linear")
        ids = tokens(model)
        model(ids, ids).backward()
        changed = ids.clone()
        changed[:, 6] = (changed[:, 6] + 1) % 29
        torch.testing.assert_close(model(ids)[:, :6], model(changed)[:, :6])
    out = model.blocks[0].attn.out.weight
    assert out.std().item() == pytest.approx(0.02 * 6**-0.5, rel=0.15)
    yf.save_model(model, tmp_path / "m")
    assert torch.equal(yf.load_model(tmp_path / "m")(ids), model(ids))
    monkeypatch.delitem(registry._PAIRS, "linear")
    with pytest.raises(yf.YuriiError, match="must be registered"):
        yf.load_model(tmp_path / "m")


def run_commands(lines: list[str]) -> None:
    from yuriiformer.cli.main import main

    lines = "\n".join(lines).replace("\\\n", "").splitlines()  # a backslash continues a line
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("yurii ")]
    commands = [command[1:] for command in words]
    assert commands
    with warm_suites():
        for command in commands:
            assert main(command) == 0, command


def test_python_on_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in blocks("README.md", "python"):
        exec(code, {"__name__": "readme"})


@pytest.mark.slow
def test_commands_on_the_readme(tmp_path, monkeypatch, capsys):
    """Every `yurii ...` line of the README runs."""
    monkeypatch.chdir(tmp_path)
    run_commands([line for block in blocks("README.md", "console") for line in block.splitlines()])
    assert capsys.readouterr().out


@pytest.mark.slow
def test_the_start_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(blocks("docs/start.md", "toml")[0], encoding="utf-8")
    run_commands(blocks("docs/start.md", "console")[0].splitlines())
    said = capsys.readouterr().out
    assert "Heavy ball, attention first" in said
    assert "Once upon a time" in said


def listed(heading: str) -> set[str]:
    """The files that a section of the page on formats names."""
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    table = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, flags=re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(.+?)`", row)}


@pytest.mark.slow
def test_the_formats_page(tmp_path, monkeypatch, capsys):
    """Every file that it names is there, and it names every file."""
    monkeypatch.chdir(tmp_path)
    small = "n_layer=2 d_model=32 n_head=2 steps=4 context=32"
    run_commands(
        [
            "yurii prepare tales --stories 200 --tokenizer bpe:512 --out tales",
            f"yurii suite --data tales --rules gd-euler --set {small} --out suite",
            "yurii archive suite kept",
        ]
    )
    run = "suite/runs/gd-euler/seed-0"
    yf.save_model(
        yf.load_model(f"{run}/checkpoints/best"), "model", yf.TokenStore.open("tales").tokenizer()
    )
    for heading, folder, hidden in (
        ("A prepared corpus", "tales", set()),
        ("A run", run, {".lock", "samples.json"}),
        ("A model folder", "model", set()),
        ("A suite", "suite", {".lock"}),
        ("An archive", "kept", set()),
    ):
        named = {name.replace("ARM", "gd-euler") for name in listed(heading)}
        assert named, heading
        missing = {name for name in named if not Path(folder, name).exists()}
        assert missing <= {"failures.json", "report"}, heading  # where something is to be told
        tops = {name.partition("/")[0] for name in named}
        assert {path.name for path in Path(folder).iterdir()} <= tops | hidden, heading
    [*_, record] = _records(run)
    known = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in known for key in record)
    capsys.readouterr()


def test_the_rules_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/rules.md").read_text(encoding="utf-8")
    assert set(yf.rules) <= set(re.findall(r"`([a-z0-9-]+)`", page))
    run_commands(blocks("docs/rules.md", "console")[0].splitlines())
    capsys.readouterr()
    run_commands(["yurii rules show nesterov-lie-trotter --format unicode"])
    printed = capsys.readouterr().out
    assert blocks("docs/rules.md", "text") == blocks("README.md", "text") == [printed]


def test_the_model_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = blocks("docs/model.md", "python")
    scope: dict = {}
    exec(first, scope)
    shown = re.search(r"blocks\[0\].coefficients\(\)  # (\{.*?), \.\.\.\}", first)[1]
    found = scope["model"].blocks[0].coefficients()
    for name, value in re.findall(r'"(\w+)": ([\d.]+)', shown):
        assert found[name].item() == pytest.approx(float(value))
    exec(second, {})


def test_the_readmes_rule_is_the_papers():
    scope: dict = {}
    exec(blocks("README.md", "python")[0], scope)
    assert scope["rule"].assigns == yf.rules["nesterov-lie-trotter"].assigns


def test_the_data_page(tmp_path, monkeypatch, capsys):
    """Its commands (the hub is out of reach, so tales and own files only) and its Python."""
    monkeypatch.chdir(tmp_path)
    Path("my_texts").mkdir()
    Path("my_texts/a.txt").write_text("some text of my own")
    Path("notes.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "a note"}\n' * 30))
    Path("downloads").mkdir()
    Path("downloads/a.txt").write_text("<|endoftext|>".join(map(str, range(100))))
    first, second = blocks("docs/data.md", "console")
    run_commands([line for line in first.splitlines() if "from the hub" not in line])
    run_commands(second.splitlines())
    assert "every byte is as it was written" in capsys.readouterr().out
    scope: dict = {}
    exec(blocks("docs/data.md", "python")[0], scope)
    joined = np.concatenate([part for share in scope["shares"] for part in share])
    assert np.array_equal(joined, scope["starts"])
    assert scope["inputs"].shape == (8, 128)


def test_the_numbers_of_the_tales():
    page = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    assert f"{tales.entropy_per_story():.3f} nats per story" in page


def test_the_training_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_commands(blocks("docs/training.md", "console")[0].splitlines())
    assert "finished 40 steps" in capsys.readouterr().out
    scope: dict = {}
    exec(blocks("docs/training.md", "python")[0], scope)
    assert scope["result"].outcome == "finished"
    assert scope["model"].config.rule.name == "polyak-lie-trotter"


def test_the_finetuning_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_commands(blocks("docs/finetuning.md", "console")[0].splitlines())
    said = capsys.readouterr().err
    assert "15 tensors came over, 0 are new, 0 were left" in said
    for line in blocks("docs/finetuning.md", "text")[0].splitlines()[:-1]:
        assert line.split(", ...")[0] in said
    assert said.count("(+0.0000)") == 2


def test_the_python_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs, compared, loop, block = blocks("docs/python.md", "python")
    scope: dict = {}
    exec(runs, scope)
    exec(compared, scope)
    said = capsys.readouterr().out
    assert "GD+Lie–Trotter" in said
    assert "Nesterov+Lie–Trotter" in said
    finals = [arm.values("final") for arm in scope["compared"].comparison.arms]
    wanted = sum(finals[1][seed] - finals[0][seed] for seed in (0, 1)) / 2
    assert scope["gain"].mean == pytest.approx(wanted)
    assert abs(scope["loss"] - finals[0][0]) < 0.2
    exec(loop, scope)
    assert scope["losses"][-1] < scope["losses"][0] - 0.5
    assert yf.open_model("mine").tokenizer.vocab_size == 512
    exec(block, scope)
    assert scope["beta"].item() == pytest.approx(0.9)
    gradients = [p.grad for p in scope["encoder"].parameters() if p.requires_grad]
    assert sum(gradient is not None for gradient in gradients) > 50


@pytest.mark.slow
def test_the_comparing_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, study, archive = blocks("docs/comparing.md", "console")
    run_commands(first.splitlines())
    assert "ends lowest" in capsys.readouterr().out
    assert Path("suite/report/report.html").exists()
    Path("study.toml").write_text(blocks("docs/comparing.md", "toml")[0])
    run_commands(study.splitlines())
    assert "Momentum ends lower than gradient descent" in capsys.readouterr().out
    run_commands(archive.splitlines())
    [report] = re.findall(
        r"`(yurii train --config archived\S+ .*?)`",
        (ROOT / "docs/comparing.md").read_text().replace("\n", " "),
    )
    run_commands([report])
    again, first = (_records(path) for path in ("again", "study/runs/gd/seed-0"))
    assert again == first


def _records(run: str) -> list[dict]:
    from yuriiformer.runs.metrics import read_metrics

    records = read_metrics(Path(run) / "metrics.jsonl")
    return [{k: v for k, v in record.items() if k != "timing"} for record in records]


@pytest.mark.slow
def test_the_reproducing_page(tmp_path, monkeypatch, capsys):
    """Its block for a CPU; and every file that its table names is one that a report writes."""
    monkeypatch.chdir(tmp_path)
    stories = [tales.story(0, index) for index in range(600)]
    Path("stories.txt").write_text("<|endoftext|>".join(map(str, stories)))
    [block] = blocks("docs/reproducing.md", "console")
    run_commands(block.splitlines())
    said = capsys.readouterr().out
    assert "not the paper's data: " in said
    index = Path("try/report/paper/index.md").read_text()
    assert "Not the paper's setting" in index
    page = (ROOT / "docs/reproducing.md").read_text(encoding="utf-8")
    named = re.findall(r"^\|.*\| `([\w.-]+)` \|$", page, flags=re.MULTILINE)
    assert len(named) == 11
    made = {path.name.partition(".")[0] for path in Path("try/report/paper").iterdir()}
    owt = {
        name for name in named if "openwebtext" in name or "downstream" in name or "-5-n" in name
    }
    assert set(named) - owt - {"claims.md"} <= made
    run_commands(["yurii archive try kept", "yurii report kept --paper --formats png"])
    for name in ("index.md", "tables.tex", "table-2-tinystories.md"):  # the same without the runs
        one, two = (Path(folder, "report", "paper", name).read_text() for folder in ("try", "kept"))
        assert one == two


def test_the_study_on_the_comparing_page(tmp_path):
    """Its file is one, with the arms that the page speaks of."""
    from yuriiformer.comparison.study import read_study

    path = tmp_path / "study.toml"
    path.write_text(blocks("docs/comparing.md", "toml")[0], encoding="utf-8")
    labels = [arm.label for arm in read_study(path).arms]
    assert "table, muon_lr=0.02" in labels
    assert len(labels) == 5


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # transformers' own
def test_the_using_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, export, evaluate = blocks("docs/using.md", "console")
    run_commands(first.splitlines())
    assert "Once upon a time" in capsys.readouterr().out
    opened, ours, theirs = blocks("docs/using.md", "python")
    scope: dict = {}
    exec(opened, scope)
    assert scope["opened"].rule.name == "polyak-euler"
    exec(ours, {})
    run_commands(export.splitlines())
    exec(theirs, scope)
    assert scope["text"].startswith("Once upon a time")
    run_commands(evaluate.splitlines())
    assert "perplexity" in capsys.readouterr().out


def test_the_inside_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_commands(blocks("docs/inside.md", "console")[0].splitlines())
    assert "mean effective depth" in capsys.readouterr().out
    assert Path("seen/depth.html").exists()
    scope: dict = {}
    exec(blocks("docs/inside.md", "python")[0], scope)
    assert scope["found"].by_layer["lens_loss"].shape == (4, 10)


def test_the_planning_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_commands(blocks("docs/planning.md", "console")[0].splitlines())
    assert "NVIDIA H200" in capsys.readouterr().out
    run_commands(blocks("docs/scaling.md", "console")[0].splitlines())
    assert "22 layers" in capsys.readouterr().out
