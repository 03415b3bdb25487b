"""Laws of the loss against size: known ones are found, what the data cannot carry is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import least_squares, nnls

from tests.comparison.ladder_runs import FLOOR, LAWS, WIDTHS, family, law, write_ladder
from yuriiformer.comparison.ladders import Estimate, Family, Rung, families, grow_together
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.comparison.scaling import _gains as gains
from yuriiformer.comparison.scaling import fit, gain_at, scaled_parameters, scaling, work
from yuriiformer.comparison.scaling_laws import (
    HUBER,
    ComputeLaws,
    fit_compute,
    fit_sizes,
    huber,
    nonnegative,
)
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters
from yuriiformer.report.tables import json_data
from yuriiformer.training.presets import preset

COMPUTE = np.repeat(np.geomspace(1e13, 4e14, 5), 2)


def test_least_squares_without_negative_numbers_are_scipys():
    random = np.random.default_rng(0)
    columns, y = random.random((40, 12, 3)), random.random((40, 12)) - 0.3
    found = nonnegative(columns, y, np.ones_like(y))
    for one, own, numbers in zip(columns, y, found, strict=True):
        assert numbers == pytest.approx(nnls(one, own)[0], abs=1e-6)
    assert (found == 0).any()


def test_a_law_in_compute_is_the_best_there_is():
    """As scipy's general optimiser finds it, with a run far off that Huber's loss gives little."""
    random = np.random.default_rng(1)
    y = [law(COMPUTE, *LAWS[name]) + 0.004 * random.standard_normal(10) for name in LAWS]
    y[0][3] += 0.2
    laws = fit_compute([COMPUTE] * 2, [own[None] for own in y])
    x = np.log(COMPUTE) - np.log(COMPUTE).mean()

    def residuals(q):
        return np.concatenate([q[0] + np.exp(q[i] - q[i + 1] * x) - y[i // 2] for i in (1, 3)])

    best = least_squares(residuals, [1.5, 0, 0.2, 0, 0.2], loss="huber", f_scale=HUBER, xtol=1e-12)
    ours = sum(huber(own.loss(COMPUTE)[0] - got).sum() for own, got in zip(laws, y, strict=True))
    assert ours == pytest.approx(best.cost, rel=1e-4)
    assert [own.exponent[0] for own in laws] == pytest.approx(best.x[2::2], rel=0.02)


def test_known_exponents_of_parameters_and_tokens_are_found():
    sizes = np.meshgrid(np.geomspace(1e6, 3e7, 4), np.geomspace(1e7, 1e9, 4))
    N, D = (part.ravel() for part in sizes)
    losses = 1.5 + 0.9 * (N / 1e6) ** -0.34 + 0.7 * (D / 1e7) ** -0.28
    found = fit_sizes(N, D, losses[None])
    assert (found.alpha[0], found.beta[0]) == pytest.approx((0.34, 0.28), abs=0.01)
    assert found.floor[0] == pytest.approx(1.5, abs=0.02)
    frontier, flops = found.frontier(6.0), 1e15
    n = np.geomspace(1e5, 1e9, 4000)
    assert frontier.loss(flops)[0] == pytest.approx(found.loss(n, flops / 6 / n).min(), abs=1e-5)


def test_the_gain_is_right_where_a_token_costs_more():
    """A rule with the same loss per token and twice the FLOPs has half the baseline's compute."""
    base, twice = (
        ComputeLaws(np.array([1.6]), np.array([0.15 * np.log(scale)]), np.array([0.15]))
        for scale in (3e13, 6e13)
    )
    for loss in (2.2, 2.9):
        assert gain_at(base, twice, loss)[0] == pytest.approx(0.5)
    assert gain_at(base, twice, 1.5)[0] != gain_at(base, twice, 1.5)[0]  # neither gets there


def made(seed: int = 0, sizes: int = 5, seeds: int = 2):
    """Two rules whose seeds share most of their noise."""
    random = np.random.default_rng(seed)
    compute = np.geomspace(1e13, 4e14, sizes)
    shared = 0.003 * random.standard_normal((sizes, seeds))
    told = {"base": LAWS["gd-lie-trotter"], "new": LAWS["nesterov-lie-trotter"]}
    return [family(random, n, t, compute, seeds=seeds, shared=shared) for n, t in told.items()]


def truths(gain):
    (one, a), (two, b) = LAWS["gd-lie-trotter"], LAWS["nesterov-lie-trotter"]

    def ratio(loss):
        return one * (loss - FLOOR) ** (-1 / a) / (two * (loss - FLOOR) ** (-1 / b))

    small, large = map(ratio, gain.losses)
    return {"small": small, "large": large, "growth": large / small, "exponent": b - a}


def covered(seed: int, **sizes):
    """Which intervals hold the truth."""
    fits = fit(made(seed, **sizes), apart=False, draws=200, seed=seed)
    [gain] = gains(fits)
    held = {n: getattr(gain, n).low <= t <= getattr(gain, n).high for n, t in truths(gain).items()}
    for name, number, truth in (
        ("E", fits[0].laws.floor, FLOOR),
        ("a", fits[0].laws.exponent, 0.15),
    ):
        found = Estimate.of(number)
        held[name] = found.low <= truth <= found.high
    return held


def test_the_interval_of_the_gain_is_narrow_because_seeds_are_shared():
    [gain] = gains(fit(made(), apart=False, draws=200))
    truth = truths(gain)
    assert gain.large.low < truth["large"] < gain.large.high
    assert gain.growth.low > 1  # it grows, and that is sure
    assert gain.large.high / gain.large.low < 1.5


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [4, 7])
def test_intervals_hold_the_truth_as_often_as_they_say(sizes):
    """95 %, within four standard errors of so many trials."""
    trials = 150
    held = [covered(seed, sizes=sizes) for seed in range(trials)]
    error = (0.95 * 0.05 / trials) ** 0.5
    for name in held[0]:
        share = np.mean([each[name] for each in held])
        assert abs(share - 0.95) < 4 * error, (name, share)


def test_parameters_and_tokens_that_grow_together_are_told(tmp_path):
    found, _ = families(compare_arms(write_ladder(tmp_path / "line")))
    assert [each.label for each in found] == list(LAWS)
    assert found[0].baseline
    assert "grow together (10 tokens per parameter)" in grow_together(found)
    one = {"gd-lie-trotter": LAWS["gd-lie-trotter"]}
    some = {"tokens_per_parameter": (3, 10, 30), "widths": (48, 96, 160), "seeds": 1}
    apart = write_ladder(tmp_path / "apart", one, **some)
    assert grow_together(families(compare_arms(apart))[0]) == ""


def test_the_whole_section(tmp_path):
    """The laws that made the runs, in the three counts of parameters, and the paper's sizes."""
    comparison = compare_arms(write_ladder(tmp_path, noise=0.002))
    found = scaling(comparison, draws=60)
    rung = found.families[1].rungs[0]
    width, model = WIDTHS[0], comparison.arms[0].first.config.model
    assert rung.parameters["blocks"] == rung.parameters["without_tables"] - 2048 * width
    tables = (2048 + model.context) * width
    assert rung.parameters["all"] - rung.parameters["without_tables"] == tables
    numbers = found.fits[1].numbers()
    assert numbers["a"].low < 0.17 < numbers["a"].high
    assert [target.name for target in found.targets] == ["small", "medium"]
    assert any("a picture, not a forecast" in text for text in found.said)
    assert found.targets[1].losses["gd-lie-trotter"].high > FLOOR
    told = json_data(comparison)["scaling"]
    json.dumps(told)
    assert told["compute_equivalent_gain"][0]["large"]["value"] > 1


APART = {"alpha_all": 0.34, "beta_all": 0.28, "E": 1.5}


def spread_out(label: str, per_token: float, seed: int, noise: float = 0.002) -> Family:
    """Three sizes with three numbers of tokens each."""
    random = np.random.default_rng(seed)
    rungs = []
    for n in np.geomspace(1e6, 3e7, 3):
        for d in np.geomspace(1e7, 1e9, 3):
            loss = 1.5 + 0.9 * (n / 1e6) ** -0.34 + 0.7 * (d / 1e7) ** -0.28
            losses = {each: loss + noise * random.standard_normal() for each in (0, 1)}
            counts = dict.fromkeys(("all", "without_tables", "blocks"), n)
            rungs.append(Rung(label, counts, d, per_token * n * d, losses))
    rungs.sort(key=lambda rung: rung.flops)
    return Family(label, label == "base", rungs)


def test_parameters_and_tokens_that_vary_apart_give_both_exponents():
    """A rule with the same losses at half the FLOPs per token has a gain of two."""
    made = [spread_out("base", 6.0, seed=3), spread_out("cheap", 3.0, seed=4)]
    assert grow_together(made) == ""
    fits = fit(made, apart=True, draws=20)
    for each in fits:
        numbers = each.numbers()
        for name, truth in APART.items():
            assert numbers[name].value == pytest.approx(truth, abs=0.03)
            assert numbers[name].low < numbers[name].value < numbers[name].high
    [gain] = gains(fits)
    assert gain.large.value == pytest.approx(2, rel=0.1)


@pytest.mark.slow
def test_intervals_of_both_exponents_hold_the_truth_as_often_as_they_say():
    trials = 40
    held: dict[str, list[bool]] = {name: [] for name in APART}
    for seed in range(trials):
        numbers = fit([spread_out("base", 6.0, seed)], apart=True, draws=60, seed=seed)[0].numbers()
        for name, truth in APART.items():
            held[name].append(numbers[name].low <= truth <= numbers[name].high)
    error = (0.95 * 0.05 / trials) ** 0.5
    for name, hits in held.items():
        assert np.mean(hits) > 0.95 - 3 * error, (name, np.mean(hits))


@pytest.mark.parametrize("rule", ["gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"])
def test_the_papers_sizes_are_those_of_a_model(rule):
    """Parameters and FLOPs from the largest run, against the models themselves."""
    small = preset("cpu-tinystories", rule).with_(vocab_size=2048, n_layer=6, d_model=96, n_head=3)
    large = small.with_(n_layer=12, d_model=768, n_head=12).model
    counts = [count_parameters(each) for each in (small.model, large)]
    known = {"all": counts[0].all, "blocks": counts[0].paper - 2048 * 96}
    rung = Rung("", known, 0.0, 0.0, {})
    assert scaled_parameters(rung, small.model, 12, 768) == pytest.approx(counts[1].all, rel=0.01)
    ratio = work(large, 12, 768) / work(small.model, 6, 96)
    told = model_work(large).total.both / model_work(small.model).total.both
    assert ratio == pytest.approx(told, rel=0.01)


@pytest.mark.parametrize(
    ("widths", "seeds", "words"),
    [
        (WIDTHS[:3], 2, "It has 3 sizes, and a law needs 4"),
        ((48, 52, 56, 60), 2, "compute spans a factor of"),
        (WIDTHS[:4], 1, "It has 4 runs: too few"),
    ],
)
def test_what_cannot_carry_a_law_is_refused(tmp_path, widths, seeds, words):
    arms = write_ladder(tmp_path, {"gd-lie-trotter": (3e13, 0.15)}, widths=widths, seeds=seeds)
    found = scaling(compare_arms(arms))
    assert not found.fits
    assert not found.gains
    [text] = found.refused
    assert text.startswith("gd-lie-trotter: no law is fitted.")
    assert words in text


def test_a_loss_that_does_not_fall_is_refused(tmp_path):
    arms = write_ladder(tmp_path, {"gd-lie-trotter": (3e13, -0.02)})
    assert "does not fall with compute" in scaling(compare_arms(arms)).refused[0]


def test_a_search_for_rates_is_no_ladder(tmp_path):
    """Arms of one rule that differ in their rates, at two sizes."""
    arms = write_ladder(tmp_path, {"gd-lie-trotter": (3e13, 0.15)}, widths=(48, 64))
    assert scaling(compare_arms(arms)) is not None
    again = [
        type(arm)(f"{arm.label}, {n}", f"{arm.slug}{n}", arm.runs) for arm in arms for n in (1, 2)
    ]
    assert scaling(compare_arms([*arms, *again])) is None
    assert "Left out" in scaling(compare_arms([*arms, again[0]])).said[0]
    assert scaling(compare_arms(arms[:1])) is None


def test_folders_of_runs_and_archives_say_the_same(tmp_path):
    from tests.comparison.studies import begin, run_all
    from yuriiformer.comparison.archive import read_suite, write_archive
    from yuriiformer.comparison.collect import collect

    text = 'preset = "tales-tiny"\nbaseline = "gd, 0"\nseeds = [0, 1]\nsettings = { steps = 20 }\n'
    for place, width in enumerate((32, 64, 96, 160)):
        text += f'[[arms]]\nlabel = "gd, {place}"\nrule = "gd-lie-trotter"\n'
        text += f"settings = {{ d_model = {width}, sequences = {16 * 4**place} }}\n"
    suite = begin(tmp_path, text)
    run_all(suite, {f"gd, {n}": {s: 2 + 0.7**n + 0.002 * s for s in (0, 1)} for n in range(4)})
    write_archive(read_suite(suite), tmp_path / "archive")
    [runs], [archive] = (collect([folder]) for folder in (suite.path, tmp_path / "archive"))
    assert runs.scaling.fits
    assert json_data(runs)["scaling"] == json_data(archive)["scaling"]
