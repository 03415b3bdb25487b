"""Equations with the paper's indices, as Unicode and LaTeX."""

from __future__ import annotations

import re
import subprocess

import pytest

import yuriiformer as yf
from yuriiformer.methods.drawing.equations import latex_equations, unicode_equations

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
ODD = {  # rules that a layout or a writer may stumble over
    "two answers pending": "X = X + attn(X) + gamma * attn(V) + mlp(X)",
    "nested": "X = X + mlp(X + gamma * attn(X + attn(X)))",
    "own terms": "X = X + attn(X) / 2 + mlp(X) - X / 2\nX = X + maximum(V, X) + X + 2 * V / 3",
    "function of itself": "V = tanh(V) + attn(X) + mlp(X)\nX = X + V + tanh(X) + 0.1 + mu",
    "scalar local": "c = sqrt(1 - beta)\nX = X + c * attn(X) * c + X * mlp(X)",
    "long names": "G_prev_old = attn(X) + mlp(X)\nX = X - G_prev_old + norm(unit(G_prev_old))",
    "answer twice": "A = attn(X)\nX = X + mlp(X + A) * A - A / mu",
}
RULES = {
    **yf.rules,
    "adam": ADAM,
    **{name: yf.Rule(name, text, label="costs $5") for name, text in ODD.items()},
}


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


def test_names_of_several_parts():
    rule = yf.Rule("r", ODD["long names"])
    assert unicode_equations(rule)[0].startswith("G_prev_oldₜ₊½ = Attn")
    assert r"G^{\mathrm{prev\_old}}_{t+\frac{1}{2}} &= " in latex_equations(rule)
    rule = yf.Rule("r", "X = X + 0.123456789 * attn(X) + beta2_slow * mlp(X)")
    assert unicode_equations(rule) == ["Xₜ₊₁ = Xₜ + 0.123456789 Attnₜ(Xₜ) + β₂_slowₜ MLPₜ(Xₜ)"]


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


def test_latex_is_balanced_and_matplotlib_reads_it():
    mathtext = pytest.importorskip("matplotlib.mathtext")
    texts = {name: latex_equations(rule) for name, rule in RULES.items()}
    for name, text in texts.items():
        assert text.count(r"\left") == text.count(r"\right"), name
    lines = {line.removesuffix(r"\\") for text in texts.values() for line in text.split("\n")[1:-1]}
    assert len(lines) > 40
    parser = mathtext.MathTextParser("path")
    for line in sorted(lines):  # those that rules share once
        parser.parse(f"${line.replace('&', '').strip()}$".replace(r"\tfrac", r"\frac"))


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
