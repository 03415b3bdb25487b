"""Equations with the paper's indices, as Unicode and LaTeX."""

from __future__ import annotations

import re
import subprocess

import pytest

import yuriiformer as yf
from yuriiformer.render.equations import latex_equations, unicode_equations

ADAM = yf.Rule(
    "adam",
    """
    G = attn(X) + mlp(X)
    M = beta * M + (1 - beta) * G
    S = beta2_slow * S + (1 - beta2_slow) * square(G)
    X = X + gamma * M / (sqrt(S) + 1e-8) - abs(X) / 2 * maximum(M, -Grad)
    """,
    streams={"M": "zero", "S": "zero", "Grad": "zero"},
)
RULES = {**yf.rules, "adam": ADAM}


def test_yuriiformer():
    assert unicode_equations(yf.rules["nesterov-lie-trotter"]) == [
        "Vₜ₊½ = LNᵥ(βₜ Vₜ + γₜ Attnₜ(Xₜ + μₜ Vₜ))",
        "Xₜ₊½ = Xₜ + Vₜ₊½",
        "Vₜ₊₁ = LNᵥ(βₜ₊½ Vₜ₊½ + γₜ₊½ MLPₜ(Xₜ₊½ + μₜ₊½ Vₜ₊½))",
        "Xₜ₊₁ = Xₜ₊½ + Vₜ₊₁",
    ]


def test_verlet_has_the_papers_stars():
    lines = unicode_equations(yf.rules["verlet-ama"])
    assert [line.split("=")[0].strip() for line in lines] == [
        "Vₜ₊½",
        "Xₜ₊½",
        "V*ₜ₊½",
        "X*ₜ₊½",
        "Vₜ₊₁",
        "Xₜ₊₁",
    ]
    assert lines[-2] == "Vₜ₊₁  = LNᵥ(βₜ V*ₜ₊½ + ½ γₜ Attnₜ(X*ₜ₊½ + μₜ V*ₜ₊½))"


def test_a_constant_stream_has_no_index():
    assert unicode_equations(yf.rules["gd-table"])[0].endswith("= Xₜ + λₜ LN(E)")


def test_latex():
    assert latex_equations(yf.rules["polyak-euler"]).splitlines() == [
        r"\begin{aligned}",
        r"  V_{t+1} &= \mathrm{LN}_v\!\left(\beta_{t} V_{t} + \gamma_{t} \left("
        r"\mathsf{Attn}_t\!\left(X_{t}\right) + "
        r"\mathsf{MLP}_t\!\left(X_{t}\right)\right)\right) \\",
        r"  X_{t+1} &= X_{t} + V_{t+1}",
        r"\end{aligned}",
    ]


PRECEDENCE = {
    "X - (X - V)": "Xₜ − (Xₜ − Vₜ)",
    "X - (X + V)": "Xₜ − (Xₜ + Vₜ)",
    "X + (X - V)": "Xₜ + Xₜ − Vₜ",
    "X - -V": "Xₜ − (−Vₜ)",
    "-(X + V)": "−(Xₜ + Vₜ)",
    "mu * (X + V)": "μₜ·(Xₜ + Vₜ)",
    "(X + V) * mu": "(Xₜ + Vₜ) μₜ",
    "X / (mu * V)": "Xₜ / (μₜ Vₜ)",
    "X / mu * V": "(Xₜ / μₜ) Vₜ",
    "mu * (X / V)": "μₜ·(Xₜ / Vₜ)",
    "X / (V / mu)": "Xₜ / (Vₜ / μₜ)",
    "2 * 3 * X": "2·3 Xₜ",
    "0.5 * mu * X": "½ μₜ Xₜ",
    "square(X - V)": "(Xₜ − Vₜ)²",
    "abs(X) * sqrt(mu)": "|Xₜ| √(μₜ)",
}


@pytest.mark.parametrize("text", PRECEDENCE)
def test_parentheses_stand_where_they_are_needed(text):
    rule = yf.Rule("r", f"X = {text} + attn(X) + mlp(X) + 0 * V\nV = V + X")
    assert unicode_equations(rule)[0].startswith(f"Xₜ₊₁ = {PRECEDENCE[text]} + Attn")


@pytest.mark.parametrize("name", RULES)
def test_latex_is_balanced_and_matplotlib_reads_it(name):
    mathtext = pytest.importorskip("matplotlib.mathtext")
    text = latex_equations(RULES[name])
    assert text.count(r"\left") == text.count(r"\right")
    parser = mathtext.MathTextParser("path")
    for line in text.splitlines()[1:-1]:
        formula = line.replace("&", "").removesuffix(r"\\").strip().replace(r"\tfrac", r"\frac")
        parser.parse(f"${formula}$")


@pytest.mark.slow
def test_latex_compiles(tmp_path, need_tool):
    """All rules in one document, through a real TeX."""
    pdflatex = need_tool("pdflatex")
    body = "\n".join(f"\\[\n{latex_equations(rule)}\n\\]" for rule in RULES.values())
    head = r"\documentclass{article}\usepackage{amsmath}\begin{document}"
    (tmp_path / "rules.tex").write_text(head + body + r"\end{document}")
    command = [pdflatex, "-halt-on-error", "-interaction=nonstopmode", "rules.tex"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-2000:]
    assert re.search(r"Output written on rules.pdf \(\d+ pages?", result.stdout)
