"""One optimiser step written out longhand, in float64, from the formulas and nothing of ours."""

from __future__ import annotations

import math

import torch

A, B, C = 3.4445, -4.7750, 2.0315


def newton_schulz(G: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """One matrix, as the definition says."""
    X = G / max(G.norm().item(), 1e-7)
    if G.shape[0] > G.shape[1]:
        X = X.T
    for _ in range(steps):
        S = X @ X.T
        X = A * X + (B * S + C * S @ S) @ X
    return X.T if G.shape[0] > G.shape[1] else X


def kind(name: str) -> str:
    """By the names of the paper's parameters."""
    if name.startswith("starts."):
        return "embeddings"
    if ".coefficients." in name:
        return "coefficients"
    return "matrices" if name.split(".")[-2] in ("qkv", "out", "up", "down") else "norms"


def rate(step: int, steps: int, warmup: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


class Longhand:
    """Weights by name, and what the two optimisers remember of each."""

    def __init__(self, weights: dict[str, torch.Tensor], *, steps: int, warmup: int) -> None:
        self.weights = {name: w.detach().clone() for name, w in weights.items()}
        self.mean = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.square = {name: torch.zeros_like(w) for name, w in weights.items()}
        self.steps, self.warmup = steps, warmup

    def step(self, step: int, gradients: dict[str, torch.Tensor], *, clip: float) -> None:
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
        factor = min(1.0, clip / (norm + 1e-6))
        schedule = rate(step, self.steps, self.warmup)
        for name, gradient in gradients.items():
            g, w = gradient * factor, self.weights[name]
            if kind(name) == "matrices":
                self.mean[name] = 0.95 * self.mean[name] + 0.05 * g
                update = newton_schulz(0.05 * g + 0.95 * self.mean[name])
                size = math.sqrt(max(1.0, w.shape[0] / w.shape[1]))
                self.weights[name] = w - 0.02 * schedule * size * update
                continue
            lr = 6e-4 * schedule * (5.0 if kind(name) == "coefficients" else 1.0)
            decay = 0.1 if kind(name) == "embeddings" else 0.0
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * g
            self.square[name] = 0.95 * self.square[name] + 0.05 * g * g
            m = self.mean[name] / (1 - 0.9 ** (step + 1))
            v = self.square[name] / (1 - 0.95 ** (step + 1))
            self.weights[name] = w * (1 - lr * decay) - lr * m / (v.sqrt() + 1e-8)
