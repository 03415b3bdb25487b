"""``yurii lab quadratic|particles|order``: the update rules on plain optimisation problems."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from yuriiformer.cli.parsing import check_folder, parse_command
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.files import write_text
from yuriiformer.lab.text import lab_text

if TYPE_CHECKING:
    from yuriiformer.methods.rule import Rule

Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg")
KIND = "yurii lab"  # marks a folder that this command wrote
Rules = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="RULE",
        help="names, TOML files, variations, or a group: paper, standard, controls, upcycling, "
        "further, all; a selection if none are given",
    ),
]
Given = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="set", metavar="NAME=NUMBER", help="coefficients of every rule that has them: mu=0.5"
    ),
]


def quadratic(
    rules: Rules = (),
    condition: float = 100.0,
    dim: int = 2,
    split: Literal["even", "spectrum", "shifted"] = "even",
    steps: int = 300,
    step_size: float | None = None,
    coefficients: Literal["classical", "model"] = "classical",
    given: Given = (),
    tune: bool = False,
    norm: bool = False,
    seed: int = 0,
    out: Path = Path("lab-quadratic"),
    figures: bool = True,
    formats: tuple[Format, ...] = FORMATS,
) -> None:
    """Rules on a quadratic: rates by theory and measured, limits, paths.

    Args:
        rules: which rules.
        condition: the largest curvature divided by the smallest.
        dim: dimensions; paths are drawn along the flattest and the steepest of them.
        split: the parts of attention and MLP: half each (even), parts that do not commute
            (spectrum), or half each with different minima (shifted).
        steps: blocks to run.
        step_size: one for all rules; each gets its classical one if not given.
        coefficients: classical constants for this condition number, or what a model starts with.
        given: coefficients; these override all others.
        tune: find for each rule the step size and momentum with the least spectral radius.
        norm: apply LN_v, as in a model; without it a block is linear, and theory is exact.
        seed: of the basis, the minimum and the start.
        out: folder for lab.json and the figures.
        figures: draw them.
        formats: of the figures.
    """
    from yuriiformer.lab.results import QuadraticLab, quadratic_results
    from yuriiformer.lab.run import parse_given

    chosen = _chosen(rules, "quadratic", seed)
    if tune and norm:
        raise ConfigError("--tune needs a linear block: leave out --norm")
    options = QuadraticLab(
        condition=condition,
        dim=dim,
        split=split,
        steps=steps,
        step_size=step_size,
        coefficients=coefficients,
        tune=tune,
        given=parse_given(given, chosen),
        norm=norm,
        seed=seed,
    )
    check_folder(out, "lab.json", KIND)
    _finish(quadratic_results(chosen, options), out, formats if figures else ())


def particles(
    rules: Rules = (),
    tokens: int = 32,
    dim: int = 2,
    oracle: Literal["gradient", "attention"] = "gradient",
    steps: int = 200,
    step_size: float = 0.05,
    distance: float = 0.3,
    given: Given = (),
    norm: bool = False,
    seed: int = 0,
    out: Path = Path("lab-particles"),
    figures: bool = True,
    formats: tuple[Format, ...] = FORMATS,
) -> None:
    """Rules on tokens that attract each other: energies, clusters, trajectories.

    Args:
        rules: which rules.
        tokens: how many.
        dim: dimensions; the first two are drawn.
        oracle: attention's: the exact gradient of J, or softmax attention itself.
        steps: blocks to run.
        step_size: of both oracles.
        distance: tokens nearer than this are of one cluster.
        given: coefficients; the initial values of a model if not given.
        norm: apply LN_v, as in a model.
        seed: of the tokens' positions.
        out: folder for lab.json and the figures.
        figures: draw them.
        formats: of the figures.
    """
    from yuriiformer.lab.results import ParticleLab, particle_results
    from yuriiformer.lab.run import parse_given

    chosen = _chosen(rules, "particles", seed)
    options = ParticleLab(
        tokens=tokens,
        dim=dim,
        oracle=oracle,
        steps=steps,
        step_size=step_size,
        distance=distance,
        given=parse_given(given, chosen),
        norm=norm,
        seed=seed,
    )
    check_folder(out, "lab.json", KIND)
    _finish(particle_results(chosen, options), out, formats if figures else ())


def order(
    rules: Rules = (),
    dim: int = 3,
    damping: float = 0.5,
    time: float = 2.0,
    blocks: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048),
    step: float = 0.25,
    drift_time: float = 100.0,
    given: Given = (),
    seed: int = 0,
    out: Path = Path("lab-order"),
    figures: bool = True,
    formats: tuple[Format, ...] = FORMATS,
) -> None:
    """Rules as integrators of a flow: order, reversibility, symplecticity, energy.

    Args:
        rules: which rules.
        dim: dimensions of the function.
        damping: of the flow, for the order; a rule's own schedule stays.
        time: how long the flow is followed.
        blocks: how many blocks take that time, four numbers or more: the order is fitted to the
            four largest.
        step: of the measures of one block: reversibility, symplecticity, energy.
        drift_time: over which energy is watched.
        given: coefficients that do not follow the step.
        seed: of the function.
        out: folder for lab.json and the figure.
        figures: draw it.
        formats: of the figure.
    """
    from yuriiformer.lab.integrator import OrderLab
    from yuriiformer.lab.order import order_results
    from yuriiformer.lab.run import parse_given

    chosen = _chosen(rules, "order", seed)
    options = OrderLab(
        dim=dim,
        damping=damping,
        time=time,
        blocks=blocks,
        step=step,
        drift_time=drift_time,
        given=parse_given(given, chosen),
        seed=seed,
    )
    check_folder(out, "lab.json", KIND)
    _finish(order_results(chosen, options), out, formats if figures else ())


def _chosen(names: tuple[str, ...], problem: str, seed: int) -> list[Rule]:
    from yuriiformer.lab.run import default_rules, named_rules

    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed must be from 0 to 2^63 - 1, not {seed}")
    return named_rules(names or default_rules(problem))


def _finish(data: dict[str, Any], out: Path, formats: tuple[Format, ...]) -> None:
    data = {"kind": KIND, **data}
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        write_text(out / "lab.json", text + "\n")
    except OSError as error:
        raise RunError(f"{out} cannot be written to: {error.strerror or error}") from None
    written = []
    if formats:
        from yuriiformer.lab.figures import write_lab_figures

        written = write_lab_figures(data, out, formats)
    print(lab_text(data, shutil.get_terminal_size((120, 24)).columns))
    print(f"\n{', '.join(map(str, [out / 'lab.json', *written]))}")


def run(arguments: list[str]) -> int:
    commands: dict[str, Any] = {"quadratic": quadratic, "particles": particles, "order": order}
    parse_command("yurii lab", commands, arguments)
    return 0
