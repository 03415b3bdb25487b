"""``yurii lab quadratic|particles|order``: the update rules on plain optimisation problems."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro

from yuriiformer.cli.parsing import check_folder, parse_command
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.files import write_text
from yuriiformer.lab.setting import OrderLab, ParticleLab, QuadraticLab
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


@dataclass(frozen=True)
class Common:
    """Flags of every problem.

    Args:
        out: folder for lab.json and the figures; lab-quadratic and so on if not given.
        figures: draw them.
        formats: of the figures.
    """

    rules: Rules = ()
    given: Given = ()
    out: Path | None = None
    figures: bool = True
    formats: tuple[Format, ...] = FORMATS


def _flags(options: type[Any]) -> Any:
    """The fields as flags, without the coefficients, which --set gives."""
    kinds = get_type_hints(options)
    kept = [
        (each.name, kinds[each.name], field(default=each.default))
        for each in fields(options)
        if each.name != "given"
    ]
    return make_dataclass(options.__name__, kept, namespace={"__doc__": options.__doc__})


if TYPE_CHECKING:
    QuadraticFlags = QuadraticLab
    ParticleFlags = ParticleLab
    OrderFlags = OrderLab
else:
    QuadraticFlags, ParticleFlags, OrderFlags = map(_flags, (QuadraticLab, ParticleLab, OrderLab))


def quadratic(
    common: tyro.conf.OmitArgPrefixes[Common], problem: tyro.conf.OmitArgPrefixes[QuadraticFlags]
) -> None:
    """Rules on a quadratic: rates by theory and measured, limits, paths."""
    from yuriiformer.lab.results import quadratic_results

    chosen, given = _chosen(common, "quadratic", problem.seed)
    options = QuadraticLab(**vars(problem), given=given)
    _write(common, "quadratic", lambda: quadratic_results(chosen, options))


def particles(
    common: tyro.conf.OmitArgPrefixes[Common], problem: tyro.conf.OmitArgPrefixes[ParticleFlags]
) -> None:
    """Rules on tokens that attract each other: energies, clusters, trajectories."""
    from yuriiformer.lab.results import particle_results

    chosen, given = _chosen(common, "particles", problem.seed)
    options = ParticleLab(**vars(problem), given=given)
    _write(common, "particles", lambda: particle_results(chosen, options))


def order(
    common: tyro.conf.OmitArgPrefixes[Common], problem: tyro.conf.OmitArgPrefixes[OrderFlags]
) -> None:
    """Rules as integrators of a flow: order, reversibility, symplecticity, energy."""
    from yuriiformer.lab.order import order_results

    chosen, given = _chosen(common, "order", problem.seed)
    options = OrderLab(**vars(problem), given=given)
    _write(common, "order", lambda: order_results(chosen, options))


def _chosen(common: Common, problem: str, seed: int) -> tuple[list[Rule], dict[str, float]]:
    """The rules, and the coefficients that are given for them."""
    from yuriiformer.lab.run import default_rules, named_rules, parse_given

    if not 0 <= seed < 2**63:
        raise ConfigError(f"--seed must be from 0 to 2^63 - 1, not {seed}")
    chosen = named_rules(common.rules or default_rules(problem))
    return chosen, parse_given(common.given, chosen)


def _write(common: Common, problem: str, results: Callable[[], dict[str, Any]]) -> None:
    out = common.out or Path(f"lab-{problem}")
    check_folder(out, "lab.json", KIND)
    data = {"kind": KIND, **results()}
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        write_text(out / "lab.json", text + "\n")
    except OSError as error:
        raise RunError(f"{out} cannot be written to: {error.strerror or error}") from None
    written = []
    if common.figures and common.formats:
        from yuriiformer.lab.figures import write_lab_figures

        written = write_lab_figures(data, out, common.formats)
    print(lab_text(data, shutil.get_terminal_size((120, 24)).columns))
    print(f"\n{', '.join(map(str, [out / 'lab.json', *written]))}")


def run(arguments: list[str]) -> int:
    commands: dict[str, Any] = {"quadratic": quadratic, "particles": particles, "order": order}
    parse_command("yurii lab", commands, arguments)
    return 0
