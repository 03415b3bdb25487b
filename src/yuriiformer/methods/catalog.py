"""The catalogue: the paper's 17 rules, the controls, rules to continue a model with, further rules.

The equations are the paper's, with LN_v (``norm``) where the paper's text puts it and the index
t+1/2 of a coefficient written ``_half``. Rules that differ by a pattern (which oracle is first,
how many refinements) are composed from that pattern, so what they share is written once.
"""

from __future__ import annotations

import re

from yuriiformer.errors import UnknownRuleError
from yuriiformer.methods.rule import Catalog, Rule

UNCLEAR = (
    "The paper prints IMEX results under the labels AMA and MAM without saying which order each "
    "is; its figure for this rule is therefore of unclear label."
)


DEEPER = "The paper's IMEX scheme with more refinements than it tried."


def _imex(first: str, second: str, refinements: int, *, normalized: bool) -> Rule:
    """Explicit step with ``first``, then k refinements of the implicit step with ``second``."""

    def velocity(old: str, gamma: str, oracle: str, point: str) -> str:
        update = f"beta * {old} + {gamma} * {oracle}(X + {point})"
        return f"norm({update})" if normalized else update

    lines = ["W = " + velocity("V", "gamma", first, "mu * V")]
    for start in ["W", *["U"] * (refinements - 1)]:
        lines.append("U = " + velocity("W", "gamma_half", second, f"mu_half * {start}"))
    lines += ["V = U" if normalized else "V = norm(U)", "X = X + V"]
    words = {"attn": "Attn", "mlp": "MLP"}
    kind = "IMEX+LN_v" if normalized else "IMEX"
    return Rule(
        f"imex{refinements}-{'ln-' if normalized else ''}{first}-{second}",
        "\n".join(lines),
        label=f"{kind} k={refinements} ({words[first]}→{words[second]})",
        note=UNCLEAR,
    )


IMEX = re.compile(r"imex(0|[1-9]\d*)-(ln-)?(attn-mlp|mlp-attn)")
MOST = 99  # refinements: each is a call of an oracle


def _imex_named(name: str) -> Rule | None:
    """``imex3-ln-mlp-attn`` and the like: the paper's scheme with any number of refinements."""
    found = IMEX.fullmatch(name)
    if found is None:
        return None
    if not (len(found[1]) < 3 and 1 <= int(found[1]) <= MOST):
        reason = f"IMEX has from 1 to {MOST} refinements, not {found[1]:.20}"
        raise UnknownRuleError(f"unknown rule {name!r:.60}: {reason}")
    first, second = found[3].split("-")
    return _imex(first, second, int(found[1]), normalized=bool(found[2])).vary(note=DEEPER)


def _imex_similar(name: str) -> list[str]:
    """The four names with as many refinements as this name seems to ask for."""
    k = re.match(r"imex([1-9]\d?)(?!\d)", name)
    ends = ("attn-mlp", "mlp-attn", "ln-attn-mlp", "ln-mlp-attn")
    return [f"imex{k[1]}-{end}" for end in ends] if k else []


def _verlet(outer: str, inner: str) -> Rule:
    """Half step of ``outer``, full step of ``inner``, half step of ``outer``."""
    letters = (outer[0] + inner[0] + outer[0]).upper()
    half = f"V = norm(beta * V + 0.5 * gamma * {outer}(X + mu * V))"
    full = f"V = norm(beta * V + gamma_half * {inner}(X + mu_half * V))"
    drift = "X = X + V"
    equations = "\n".join((half, drift, full, drift, half, drift))
    return Rule(f"verlet-{letters.lower()}", equations, label=f"PRK-Verlet ({letters})")


PAPER = (
    Rule(
        "gd-euler",
        "X = X + attn(X) + mlp(X)",
        label="GD+Euler",
        note="The parallel block of GPT-J and PaLM.",
    ),
    Rule(
        "gd-lie-trotter",
        """
        X = X + attn(X)
        X = X + mlp(X)
        """,
        label="GD+Lie–Trotter",
        note="The block of GPT-2 and nanoGPT.",
    ),
    Rule(
        "polyak-euler",
        """
        V = norm(beta * V + gamma * (attn(X) + mlp(X)))
        X = X + V
        """,
        label="Polyak+Euler",
    ),
    Rule(
        "polyak-lie-trotter",
        """
        V = norm(beta * V + gamma * attn(X))
        X = X + V
        V = norm(beta_half * V + gamma_half * mlp(X))
        X = X + V
        """,
        label="Polyak+Lie–Trotter",
    ),
    Rule(
        "nesterov-euler",
        """
        Y = X + mu * V
        V = norm(beta * V + gamma * (attn(Y) + mlp(Y)))
        X = X + V
        """,
        label="Nesterov+Euler",
    ),
    Rule(
        "nesterov-lie-trotter",
        """
        V = norm(beta * V + gamma * attn(X + mu * V))
        X = X + V
        V = norm(beta_half * V + gamma_half * mlp(X + mu_half * V))
        X = X + V
        """,
        label="Nesterov+Lie–Trotter",
        note="The paper's YuriiFormer.",
    ),
    Rule(
        "hamiltonian",
        """
        V = norm(beta * V - gamma * attn(X + mu * V))
        X = X + delta * V
        V = norm(beta * V - gamma_half * mlp(X + mu * V))
        """,
        label="Hamiltonian (symplectic Euler)",
        note="The last block's MLP kick never reaches the logits: it is skipped, and the "
        "parameters that only it uses are frozen.",
    ),
    *(
        _imex(*order, refinements, normalized=normalized)
        for refinements in (1, 2)
        for normalized in (False, True)
        for order in (("attn", "mlp"), ("mlp", "attn"))
    ),
    _verlet("attn", "mlp"),
    _verlet("mlp", "attn"),
)

INJECT = "X = X + lam * unit(E)\n"
LAM = {"lam": {"range": "positive", "initial": 1.0}}
FIRST = {"initial": "2 * t / (2 * t + 3)", "learned": False}
SECOND = {"initial": "(2 * t + 1) / (2 * t + 4)", "learned": False}

paper = Catalog(PAPER)
_gradient_descent, _nesterov = paper["gd-lie-trotter"], paper["nesterov-lie-trotter"]

# Controls: is it the momentum, the extra table, or the normalisation?
CONTROLS = (
    Rule(
        "gd-table",
        INJECT + _gradient_descent.equations,
        label="GD+Lie–Trotter, second table",
        streams={"E": "tables"},
        coefficients=LAM,
        note="No momentum, but the parameters of one: a second table, added in every block.",
    ),
    Rule(
        "nesterov-table",
        INJECT + _nesterov.equations,
        label="Nesterov+Lie–Trotter, second table",
        streams={"E": "tables"},
        coefficients=LAM,
        note="Momentum and the second table of gd-table together.",
    ),
    Rule(
        "gd-tied",
        INJECT + _gradient_descent.equations,
        label="GD+Lie–Trotter, tied injection",
        streams={"E": "tied"},
        coefficients=LAM,
        note="As gd-table, but what is added in every block is the main embedding: no parameters.",
    ),
    Rule(
        "gd-normalized",
        """
        X = X + norm(attn(X))
        X = X + norm(mlp(X))
        """,
        label="GD+Lie–Trotter, LN_v",
        note="No momentum, but each oracle's answer goes through LN_v.",
    ),
    _nesterov.vary(
        name="nesterov-fixed",
        label="Nesterov+Lie–Trotter, fixed",
        coefficients={name: {"learned": False} for name in _nesterov.coefficients},
        note="All coefficients stay where they start.",
    ),
    _nesterov.vary(
        name="nesterov-classical",
        label="Nesterov+Lie–Trotter, classical",
        streams={"V": "zero"},
        coefficients={"mu": FIRST, "beta": FIRST, "mu_half": SECOND, "beta_half": SECOND},
        note="From rest, with mu = beta = k/(k+3) at the k-th velocity update, as in Nesterov's "
        "method for convex functions; the step sizes are learned. (As mu = beta = 0 at first, "
        "another start of V would never be seen.)",
    ),
)

# Rules that are gradient descent where they start, so that a trained transformer can be continued
# with one of them from exactly where it stands. The paper's rules cannot: with LN_v the velocity
# has a fixed length, whatever the coefficients are.
REAL = {"range": "real", "initial": 0.0}
UPCYCLING = (
    Rule(
        "nesterov-from-gd",
        """
        V = beta * V + gamma * attn(X + mu * V)
        X = X + V
        V = beta_half * V + gamma_half * mlp(X + mu_half * V)
        X = X + V
        """,
        label="Nesterov+Lie–Trotter, from GD",
        streams={"V": "zero"},
        coefficients={
            **dict.fromkeys(("mu", "beta", "mu_half", "beta_half"), REAL),
            **{name: {"range": "real", "initial": 1.0} for name in ("gamma", "gamma_half")},
        },
        note="Without LN_v: gradient descent at mu = beta = 0 and gamma = 1, where it starts.",
    ),
    Rule(
        "nesterov-gated",
        """
        A = attn(X + mu * V)
        V = norm(beta * V + gamma * A)
        X = X + (1 - gate) * A + gate * V
        M = mlp(X + mu_half * V)
        V = norm(beta_half * V + gamma_half * M)
        X = X + (1 - gate_half) * M + gate_half * V
        """,
        label="Nesterov+Lie–Trotter, gated",
        streams={"V": "zero"},
        coefficients=dict.fromkeys(("mu", "mu_half", "gate", "gate_half"), REAL),
        note="Gradient descent at gate = mu = 0, where it starts; the paper's Nesterov at gate = "
        "1.",
    ),
)

# Methods that the paper's text defines or cites and that it did not run.


def _mlp_first(rule: Rule) -> Rule:
    """Lie–Trotter splitting in the other order."""
    exchanged = {"attn": "mlp", "mlp": "attn"}
    return Rule(
        f"{rule.name}-mlp-attn",
        re.sub("attn|mlp", lambda found: exchanged[found[0]], rule.equations),
        label=f"{rule.label} (MLP→Attn)",
        note=f"{rule.name} with the MLP before attention.",
    )


def _strang(outer: str, inner: str, note: str = "") -> Rule:
    letters = (outer[0] + inner[0] + outer[0]).upper()
    half = f"X = X + 0.5 * {outer}(X)"
    equations = "\n".join((half, f"X = X + {inner}(X)", half))
    return Rule(
        f"gd-strang-{letters.lower()}", equations, label=f"GD+Strang ({letters})", note=note
    )


def _symmetric_verlet(outer: str, inner: str) -> Rule:
    """Read backwards, the steps are the same: damping, half kick, half drift, kick, and so on."""
    letters = (outer[0] + inner[0] + outer[0]).upper()
    equations = f"""
        V = norm(beta * V + 0.5 * gamma * {outer}(X))
        X = X + V
        V = norm(V + gamma_half * {inner}(X))
        X = X + V
        V = beta * norm(V + 0.5 * gamma * {outer}(X))
        """
    return Rule(
        f"verlet-symmetric-{letters.lower()}",
        equations,
        label=f"Symmetric Verlet ({letters})",
        note="Kicks and drifts in a symmetric order, without lookahead, with the oracle calls of "
        f"verlet-{letters.lower()}. The last block's last kick never reaches the logits: it is "
        "skipped.",
    )


FURTHER = (
    *(_mlp_first(paper[f"{family}-lie-trotter"]) for family in ("gd", "polyak", "nesterov")),
    _strang("attn", "mlp"),
    _strang("mlp", "attn", "The Macaron block (Lu et al. 2019) with one MLP for both half steps."),
    _symmetric_verlet("attn", "mlp"),
    _symmetric_verlet("mlp", "attn"),
    Rule(
        "adams-bashforth",
        """
        F = attn(X) + mlp(X)
        X = X + gamma * (1.5 * F - 0.5 * G)
        G = F
        """,
        label="Adams–Bashforth 2",
        streams={"G": "zero"},
        note="Two-step method, also called optimistic gradient descent: G holds the oracles' "
        "answers of the block before.",
    ),
    Rule(
        "adam-like",
        """
        G = attn(X) + mlp(X)
        M = beta * M + (1 - beta) * G
        S = beta_slow * S + (1 - beta_slow) * square(G)
        X = X + gamma * M / sqrt(S + eps)
        """,
        label="Adam-like",
        streams={"M": "zero", "S": "zero"},
        coefficients={
            "beta_slow": {"initial": 0.99},
            "eps": {"range": "positive", "initial": 1e-3, "learned": False},
        },
        note="The first and second moment of the oracles' answers, from block to block.",
    ),
)

BASELINE = "gd-lie-trotter"  # what others are compared with, unless another baseline is given

controls = Catalog(CONTROLS)
standard = Catalog(  # of the paper's, those whose blocks cost what a plain transformer's does
    rule for rule in PAPER if all(count == 1 for count in rule.oracle_calls.values())
)
upcycling = Catalog(UPCYCLING)
further = Catalog(FURTHER)
rules = Catalog(PAPER + CONTROLS + UPCYCLING + FURTHER, _imex_named, _imex_similar)
GROUPS = {
    "all": rules,
    "paper": paper,
    "standard": standard,
    "controls": controls,
    "upcycling": upcycling,
    "further": further,
}
