"""What the lab is asked to do: a problem, and how the rules run on it. Needs no torch.

The fields are the flags of ``yurii lab``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from yuriiformer.errors import ConfigError, whole_number
from yuriiformer.lab.setting import Constants

QuadraticSplit = Literal["even", "spectrum", "shifted"]
Pull = Literal["gradient", "attention"]

FEWEST = 4  # step sizes to fit an order to
MOST_BLOCKS = 20_000
STIFF, LONG = 100.0, 1000.0  # beyond them the reference takes long


@dataclass(frozen=True)
class QuadraticLab:
    """A quadratic and how the rules run on it.

    Args:
        condition: the largest curvature divided by the smallest.
        dim: dimensions; paths are drawn along the flattest and the steepest of them.
        split: the parts of attention and MLP: half each (even), parts that do not commute
            (spectrum), or half each with different minima (shifted).
        steps: blocks to run.
        step_size: one for all rules; each gets its classical one if not given.
        coefficients: classical constants for this condition number, or what a model starts with.
        tune: find for each rule the step size and momentum with the least spectral radius.
        given: coefficients; these override all others.
        norm: apply LN_v, as in a model; without it a block is linear, and theory is exact.
        seed: of the basis, the minimum and the start.
    """

    condition: float = 100.0
    dim: int = 2
    split: QuadraticSplit = "even"
    steps: int = 300
    step_size: float | None = None
    coefficients: Constants = "classical"
    tune: bool = False
    given: Mapping[str, float] = field(default_factory=dict)
    norm: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tune and self.norm:
            raise ConfigError("--tune needs a linear block: leave out --norm")


@dataclass(frozen=True)
class ParticleLab:
    """Particles and how the rules run on them.

    Args:
        tokens: how many.
        dim: dimensions; the first two are drawn.
        oracle: attention's: the exact gradient of J, or softmax attention itself.
        steps: blocks to run.
        step_size: of both oracles.
        distance: tokens nearer than this are of one cluster.
        given: coefficients; the initial values of a model if not given.
        norm: apply LN_v, as in a model.
        seed: of the tokens' positions.
    """

    tokens: int = 32
    dim: int = 2
    oracle: Pull = "gradient"
    steps: int = 200
    step_size: float = 0.05
    distance: float = 0.3
    given: Mapping[str, float] = field(default_factory=dict)
    norm: bool = False
    seed: int = 0


@dataclass(frozen=True)
class OrderLab:
    """A smooth function, the flow on it and the step sizes.

    Args:
        dim: dimensions of the function.
        damping: of the accelerated flow, for the order; a rule's own schedule stays.
        time: how long the flow is followed, from t = time/2.
        blocks: how many blocks take that time, four numbers or more: one step size for each. The
            order is fitted to the four largest.
        step: of the measures of one block: reversibility, symplecticity, energy.
        drift_time: over which energy is watched.
        given: coefficients that do not follow the step.
        seed: of the function.
    """

    dim: int = 3
    damping: float = 0.5
    time: float = 2.0
    blocks: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    step: float = 0.25
    drift_time: float = 100.0
    given: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for number in self.blocks:
            whole_number("--blocks", number, 1)
        if len(set(self.blocks)) < FEWEST:
            raise ConfigError(f"--blocks needs {FEWEST} different numbers or more to fit an order")
        if not 0 <= self.damping <= STIFF:
            raise ConfigError(f"--damping must be from 0 to {STIFF:g}, not {self.damping:g}")
        for name in ("time", "step", "drift_time"):
            value = getattr(self, name)
            if not 0 < value <= LONG:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be above 0 and at most {LONG:g}, not {value:g}")
        if max(*self.blocks, self.drift_time / self.step) > MOST_BLOCKS:
            raise ConfigError(
                f"more than {MOST_BLOCKS:,} blocks: give fewer --blocks, a larger --step or a "
                "shorter --drift-time"
            )
