"""The quadratic on plain numbers is the lab's."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

import yuriiformer as yf
from yuriiformer.lab.plain import PlainQuadratic, Vector, run_plain, spectral_radius, unit
from yuriiformer.lab.problems import quadratic
from yuriiformer.lab.run import trajectory
from yuriiformer.lab.setting import setting
from yuriiformer.lab.theory import theory
from yuriiformer.methods.interpreter import unit as tensor_unit

STEPS = 40


@pytest.mark.parametrize("split", ["even", "shifted"])
@pytest.mark.parametrize("name", yf.rules)
def test_the_path_and_the_radius_are_the_labs(name, split):
    rule, lab = yf.rules[name], quadratic(100.0, 2, split, seed=4)
    found = run_plain(rule, PlainQuadratic(100.0, shifted=split == "shifted"), STEPS)
    setup = setting(rule, lab, STEPS)
    assert found.setting == setup
    known = theory(lab, rule, setup)
    if known is None:
        assert found.radius is None
    else:
        assert found.radius == pytest.approx(known.radius, abs=2e-7)
    if "unit(" in rule.equations or (known is None and setup.steady):
        return  # its path depends on the basis, which is random in the lab
    path = trajectory(lab, rule, setup)
    along = ((path.X - lab.minimiser) @ lab.axes)[:, 0]
    along = along * along[0].sign()  # with this seed, start and shift have the same signs
    assert path.stopped == found.stopped
    away = (torch.tensor(found.path, dtype=torch.float64) - along).abs()
    assert (away / along.abs().amax(1, keepdim=True)).max() < 1e-9


def test_arithmetic_without_exceptions():
    x = Vector((4.0, -9.0))
    assert 1 - x == Vector((-3.0, 10.0))
    assert 36 / x == Vector((9.0, -4.0))
    assert (x / 0.0) == Vector((math.inf, -math.inf))
    assert math.isnan((Vector((0.0,)) / 0.0)[0])
    assert math.isnan(x.each(math.sqrt)[1])
    assert Vector((1e4,)).each(math.exp) == Vector((math.inf,))


def test_unit_is_layer_norm():
    x = [0.3, -2.0]
    wanted = tensor_unit(torch.tensor([x], dtype=torch.float64))[0]
    torch.testing.assert_close(torch.tensor(unit(Vector(x)), dtype=torch.float64), wanted)


def test_spectral_radius():
    turn = [[0.6, -0.8], [0.8, 0.6]]
    assert spectral_radius(turn) == pytest.approx(1.0, abs=1e-9)
    assert spectral_radius([[0.5, 1.0], [0.0, 0.5]]) == pytest.approx(0.5, abs=1e-7)
    assert spectral_radius([[0.0, 1.0], [0.0, 0.0]]) == pytest.approx(0.0, abs=1e-7)
    assert spectral_radius([[3.0, 0.0], [0.0, -4.0]]) == pytest.approx(4.0)


def test_a_condition_number_out_of_range():
    with pytest.raises(yf.YuriiError, match="from 1 to 1e6"):
        PlainQuadratic(0.5)


def test_it_needs_neither_torch_nor_numpy():
    heavy = "torch numpy scipy matplotlib tyro rich"
    code = (
        "import sys; import yuriiformer.lab.plain, yuriiformer.methods.references;"
        "import yuriiformer.methods.drawing.listing, yuriiformer.methods.drawing.layout;"
        f"print(*(n for n in {heavy!r}.split() if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
