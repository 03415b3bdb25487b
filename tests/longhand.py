"""The paper's 17 blocks written out by hand, equation by equation, with no code of the project.

Each takes the state, the two oracles A and M, the coefficients by the paper's names (``mu_half``
is the paper's mu at t+1/2) and the velocity LayerNorm N, and returns the next state. The paper
leaves LN_v out of its formulas "for readability" and says it is applied after each velocity
update; here it is written where that is.
"""


def gd_euler(X, V, A, M, c, N):
    X_new = X + A(X) + M(X)
    return X_new, V


def gd_lie_trotter(X, V, A, M, c, N):
    X_half = X + A(X)
    X_new = X_half + M(X_half)
    return X_new, V


def polyak_euler(X, V, A, M, c, N):
    V_new = N(c["beta"] * V + c["gamma"] * A(X) + c["gamma"] * M(X))
    X_new = X + V_new
    return X_new, V_new


def polyak_lie_trotter(X, V, A, M, c, N):
    V_half = N(c["beta"] * V + c["gamma"] * A(X))
    X_half = X + V_half
    V_new = N(c["beta_half"] * V_half + c["gamma_half"] * M(X_half))
    X_new = X_half + V_new
    return X_new, V_new


def nesterov_euler(X, V, A, M, c, N):
    X_in = X + c["mu"] * V
    V_new = N(c["beta"] * V + c["gamma"] * A(X_in) + c["gamma"] * M(X_in))
    X_new = X + V_new
    return X_new, V_new


def nesterov_lie_trotter(X, V, A, M, c, N):
    X_in = X + c["mu"] * V
    V_half = N(c["beta"] * V + c["gamma"] * A(X_in))
    X_half = X + V_half
    X_half_in = X_half + c["mu_half"] * V_half
    V_new = N(c["beta_half"] * V_half + c["gamma_half"] * M(X_half_in))
    X_new = X_half + V_new
    return X_new, V_new


def hamiltonian(X, V, A, M, c, N):
    X_in = X + c["mu"] * V
    V_half = N(c["beta"] * V - c["gamma"] * A(X_in))
    X_half = X + c["delta"] * V_half
    X_half_in = X_half + c["mu"] * V_half
    V_new = N(c["beta"] * V_half - c["gamma_half"] * M(X_half_in))
    X_new = X_half
    return X_new, V_new


def imex(explicit, implicit, k, X, V, c, N):
    """Explicit step, k refinements of the implicit one, a single LN_v at the end."""
    X_half = X + c["mu"] * V
    V_half = c["beta"] * V + c["gamma"] * explicit(X_half)
    V_j = V_half
    X_j = X + c["mu_half"] * V_j
    for _ in range(k):
        V_j = c["beta"] * V_half + c["gamma_half"] * implicit(X_j)
        X_j = X + c["mu_half"] * V_j
    V_new = N(V_j)
    return X + V_new, V_new


def imex_ln(explicit, implicit, k, X, V, c, N):
    """The same with LN_v after the explicit step and after each refinement."""
    X_half = X + c["mu"] * V
    V_half = N(c["beta"] * V + c["gamma"] * explicit(X_half))
    V_j = V_half
    X_j = X + c["mu_half"] * V_j
    for _ in range(k):
        V_j = N(c["beta"] * V_half + c["gamma_half"] * implicit(X_j))
        X_j = X + c["mu_half"] * V_j
    return X + V_j, V_j


def verlet(outer, inner, X, V, c, N):
    """Half step, full step, half step; the damping is the same in all three."""
    X_in = X + c["mu"] * V
    V_half = N(c["beta"] * V + c["gamma"] / 2 * outer(X_in))
    X_half = X + V_half
    X_half_in = X_half + c["mu_half"] * V_half
    V_star = N(c["beta"] * V_half + c["gamma_half"] * inner(X_half_in))
    X_star = X_half + V_star
    X_star_in = X_star + c["mu"] * V_star
    V_new = N(c["beta"] * V_star + c["gamma"] / 2 * outer(X_star_in))
    return X_star + V_new, V_new


IMEX = "mu beta gamma mu_half gamma_half"

# name: (coefficients, attention calls, MLP calls, block), in the order of the paper's list
LONGHAND = {
    "gd-euler": ("", 1, 1, gd_euler),
    "gd-lie-trotter": ("", 1, 1, gd_lie_trotter),
    "polyak-euler": ("beta gamma", 1, 1, polyak_euler),
    "polyak-lie-trotter": ("beta gamma beta_half gamma_half", 1, 1, polyak_lie_trotter),
    "nesterov-euler": ("mu beta gamma", 1, 1, nesterov_euler),
    "nesterov-lie-trotter": (
        "mu beta gamma mu_half beta_half gamma_half",
        1,
        1,
        nesterov_lie_trotter,
    ),
    "hamiltonian": ("mu beta gamma delta gamma_half", 1, 1, hamiltonian),
    "imex1-attn-mlp": (IMEX, 1, 1, lambda X, V, A, M, c, N: imex(A, M, 1, X, V, c, N)),
    "imex1-mlp-attn": (IMEX, 1, 1, lambda X, V, A, M, c, N: imex(M, A, 1, X, V, c, N)),
    "imex1-ln-attn-mlp": (IMEX, 1, 1, lambda X, V, A, M, c, N: imex_ln(A, M, 1, X, V, c, N)),
    "imex1-ln-mlp-attn": (IMEX, 1, 1, lambda X, V, A, M, c, N: imex_ln(M, A, 1, X, V, c, N)),
    "imex2-attn-mlp": (IMEX, 1, 2, lambda X, V, A, M, c, N: imex(A, M, 2, X, V, c, N)),
    "imex2-mlp-attn": (IMEX, 2, 1, lambda X, V, A, M, c, N: imex(M, A, 2, X, V, c, N)),
    "imex2-ln-attn-mlp": (IMEX, 1, 2, lambda X, V, A, M, c, N: imex_ln(A, M, 2, X, V, c, N)),
    "imex2-ln-mlp-attn": (IMEX, 2, 1, lambda X, V, A, M, c, N: imex_ln(M, A, 2, X, V, c, N)),
    "verlet-ama": (IMEX, 2, 1, lambda X, V, A, M, c, N: verlet(A, M, X, V, c, N)),
    "verlet-mam": (IMEX, 1, 2, lambda X, V, A, M, c, N: verlet(M, A, X, V, c, N)),
}
