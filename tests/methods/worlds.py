"""Random oracles, coefficients and a real LayerNorm, in float64: a world to run blocks in."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

NAMES = ("mu", "beta", "gamma", "delta", "mu_half", "beta_half", "gamma_half")


@dataclass
class World:
    seed: int
    shape: tuple[int, int, int] = (2, 5, 8)
    calls: dict[str, int] = field(default_factory=lambda: {"attn": 0, "mlp": 0})

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        _, tokens, d = self.shape
        self.X, self.V = draw(*self.shape), draw(*self.shape)
        self.mix, self.value = draw(tokens, tokens), draw(d, d)
        self.up, self.down = draw(2 * d, d), draw(d, 2 * d)
        self.coefficients = {
            name: torch.rand(1, generator=generator, dtype=torch.float64).item() * 0.8 + 0.1
            for name in NAMES
        }
        self.norm = nn.LayerNorm(d, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.norm.weight.copy_(1.0 + 0.5 * draw(d))
        self.norm.requires_grad_(False)

    def attn(self, Y: Tensor) -> Tensor:
        self.calls["attn"] += 1
        return torch.tanh(torch.softmax(self.mix, -1) @ Y @ self.value)

    def mlp(self, Y: Tensor) -> Tensor:
        self.calls["mlp"] += 1
        return torch.nn.functional.gelu(Y @ self.up.T) @ self.down.T

    def only(self, names) -> dict[str, float]:
        return {name: self.coefficients[name] for name in names}
