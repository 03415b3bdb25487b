"""Tables and figures of the lab, from plain data."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import yuriiformer as yf
from yuriiformer.display.columns import display_width
from yuriiformer.lab.figures import (
    convergence,
    energies,
    paths,
    rates,
    trajectories,
    write_lab_figures,
)
from yuriiformer.lab.results import (
    particle_results,
    quadratic_results,
)
from yuriiformer.lab.run import default_rules, named_rules
from yuriiformer.lab.setting import ParticleLab, QuadraticLab
from yuriiformer.lab.text import lab_text, settled, short_coefficients


def as_read(data):
    """As it comes from lab.json."""
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.fixture(scope="module")
def quadratics():
    chosen = named_rules(default_rules("quadratic"))
    return as_read(quadratic_results(chosen, QuadraticLab(split="shifted", steps=150)))


@pytest.fixture(scope="module")
def swarm():
    chosen = named_rules(["gd-lie-trotter", "imex2-attn-mlp", "hamiltonian"])
    return as_read(particle_results(chosen, ParticleLab(tokens=12, steps=60, step_size=0.1)))


def test_the_table_says_what_the_data_say(quadratics):
    text = lab_text(quadratics, 200)
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    for each in quadratics["rules"]:
        line = lines[each["rule"]["name"]]
        assert f"{each['theory']['block']:.4f}" in line
    assert "1+1  1      μ=β=0.818" in lines["nesterov-euler"]
    assert "2+1" in lines["verlet-ama"]
    assert "settles beside the minimum by O(h)" in lines["gd-lie-trotter"]
    assert "settles beside the minimum, however small h" in lines["imex1-attn-mlp"]
    assert "goes uphill, however small the step; diverges, stopped at block" in lines["hamiltonian"]
    assert "minimum" not in lines["gd-euler"]
    assert "gradient descent 0.9802, Nesterov 0.9000, Polyak 0.8182" in text


@pytest.mark.parametrize("width", [60, 100, 120])
def test_remarks_wrap(quadratics, width):
    lines = lab_text(quadratics, width).splitlines()
    table = [line for line in lines if line.startswith((" ", "gd-", "ham"))]
    assert max(map(display_width, table)) <= max(width, 107)  # never narrower than its columns
    assert "stopped" in " ".join(lines)


def test_the_particles_table(swarm):
    text = lab_text(swarm, 160)
    assert "12 → " in text
    assert "the exact gradient of J" in text
    assert "goes uphill: J rises" in text


def test_a_plane_is_too_little_for_layer_norm():
    data = as_read(quadratic_results([yf.rules["polyak-euler"]], QuadraticLab(norm=True, steps=20)))
    assert "leaves only the directions ±(1, -1): try --dim 16" in " ".join(lab_text(data).split())


def test_coefficients_in_short():
    same = {"mu": [0.5, 0.5], "beta": [0.5, 0.5], "mu_half": [0.5, 0.5], "gamma": [1.0, 1.0]}
    assert short_coefficients(same) == "μ=β=0.5"
    assert short_coefficients({**same, "mu_half": [0.25, 0.25]}) == "μ=β=0.5 μ½=0.25"
    assert short_coefficients({"gamma": [1.0, 1.0]}) == "–"
    assert short_coefficients({"gamma": [2.0, 2.0], "eps": [1e-3, 1e-3]}) == "γ=2 eps=0.001"
    assert short_coefficients({"mu": [0.0, 0.99]}) == "μ=0…0.99"


def test_when_a_count_settles():
    assert settled([5, 3, 2, 2, 2]) == 2
    assert settled([2, 3, 2]) == 2
    assert settled([4, 4]) == 0


def test_convergence_draws_the_gaps(quadratics):
    left, right = convergence(quadratics).axes
    for number, each in enumerate(quadratics["rules"]):
        gap = np.array(each["gap"])
        blocks, logs = left.lines[number].get_data()
        shown = np.isfinite(logs)
        assert shown[0]
        np.testing.assert_allclose(logs[shown], np.log10(gap[blocks[shown].astype(int)]))
        calls = sum(each["calls"].values())
        np.testing.assert_allclose(right.lines[number].get_xdata(), calls * blocks)
    diverging = left.lines[-1].get_ydata()
    assert np.nanmax(diverging) < left.get_ylim()[1] + 1


def test_rates_are_drawn_where_they_are(quadratics):
    (axes,) = rates(quadratics).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert "hamiltonian" not in names  # it has no rate to converge at
    drawn = {"o": [], "x": [], "None": []}
    for line in axes.lines:
        drawn[line.get_marker()].append(line.get_xdata()[0])
    theory = [-np.log(each["theory"]["block"]) for each in quadratics["rules"]]
    np.testing.assert_allclose(drawn["o"], [speed for speed in theory if speed > 0])
    np.testing.assert_allclose(drawn["x"], drawn["o"], rtol=0.02)
    textbook = [-np.log(rate) for rate in quadratics["closed_forms"].values()]
    np.testing.assert_allclose(drawn["None"], textbook)


def test_paths_end_at_the_limit_where_it_is_off(quadratics):
    figure = paths(quadratics)
    for each, axes in zip(quadratics["rules"], figure.axes, strict=True):
        assert axes.get_title() == each["rule"]["name"]
        squares = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "s"]
        assert len(squares) == bool(each["bias"])
        if each["rule"]["name"] == "nesterov-lie-trotter":
            np.testing.assert_allclose(squares[0], each["path"][-1], atol=1e-3)


def test_particles_are_drawn(swarm):
    left, right = energies(swarm).axes
    np.testing.assert_allclose(left.lines[0].get_ydata()[-1], swarm["rules"][0]["value"][-1])
    np.testing.assert_allclose(np.round(right.lines[0].get_ydata()), swarm["rules"][0]["clusters"])
    panels = trajectories(swarm).axes
    for each, axes in zip(swarm["rules"], panels, strict=True):
        tokens = np.array(each["trajectories"])  # (frame, token, 2)
        ends = [line.get_xydata() for line in axes.lines if line.get_markersize() == 4.5]
        np.testing.assert_allclose(ends[0], tokens[-1])


def test_the_same_data_give_the_same_bytes(swarm, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    for folder in (once, twice):
        folder.mkdir()
        assert len(write_lab_figures(swarm, folder, ("svg",))) == 2
    for path in once.iterdir():
        assert path.read_bytes() == (twice / path.name).read_bytes()


def test_one_dimension_has_no_paths(tmp_path):
    data = quadratic_results([yf.rules["gd-euler"]], QuadraticLab(dim=1, steps=20))
    names = [path.name for path in write_lab_figures(as_read(data), tmp_path, ("png",))]
    assert names == ["convergence.png", "rates.png"]


def test_rendering_needs_no_torch():
    code = "import sys, yuriiformer.lab.figures, yuriiformer.lab.text as lab; "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        (["hamiltonian"], {}),
        (["gd-euler"], {"condition": 1.0}),
        (["nesterov-euler"], {"condition": 1e6, "steps": 1}),
        (["gd-euler", "nesterov-classical"], {"condition": 1.5, "dim": 20, "split": "spectrum"}),
    ],
)
def test_odd_cases_are_drawn(rules, options, tmp_path):
    data = as_read(quadratic_results(named_rules(rules), QuadraticLab(**options)))
    assert len(write_lab_figures(data, tmp_path, ("png",))) == 3
    assert rules[0] in lab_text(data)


def test_one_token_is_drawn(tmp_path):
    data = as_read(particle_results(named_rules(["gd-euler"]), ParticleLab(tokens=1, steps=3)))
    assert len(write_lab_figures(data, tmp_path, ("png",))) == 2
    assert "1 → 1" in lab_text(data)
