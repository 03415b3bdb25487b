"""What a rule adds to a model in parameters, known without building one."""

from __future__ import annotations

from dataclasses import dataclass

from yuriiformer.methods.rule import Rule


@dataclass(frozen=True)
class ExtraParameters:
    """Beyond gradient descent: token tables of streams other than X, LN_v gains, coefficients.

    Position tables are left out, as in the paper's convention.
    """

    tables: int
    norms: int
    coefficients: int

    @property
    def total(self) -> int:
        return self.tables + self.norms + self.coefficients


def extra_parameters(
    rule: Rule,
    *,
    n_layer: int,
    n_head: int,
    d_model: int,
    vocab_size: int,
    separate_norms: bool = False,
) -> ExtraParameters:
    """The parameters that a model of this rule has beyond the same model of gradient descent."""
    own = [s for s, start in rule.streams.items() if s != "X" and start in ("tables", "normalized")]
    norms = rule.norm_calls if separate_norms else min(1, rule.norm_calls)
    size = {"scalar": 1, "head": n_head, "channel": d_model}
    learned = sum(size[spec.shape] for spec in rule.coefficients.values() if spec.learned)
    return ExtraParameters(
        len(own) * vocab_size * d_model, n_layer * norms * d_model, n_layer * learned
    )
