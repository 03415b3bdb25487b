"""``yurii rules``: list, show, draw."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from yuriiformer.cli.parsing import parse_command
from yuriiformer.lab.measured import integrator_text
from yuriiformer.methods.catalog import controls, further, paper, upcycling
from yuriiformer.methods.drawing.listing import describe, full_text, summary_rows, toml_text
from yuriiformer.methods.references import get_rule

RuleName = Annotated[
    str,
    tyro.conf.arg(
        metavar="RULE",
        help="a rule's name, a TOML file, or either with variations: nesterov-lie-trotter+V=zero",
    ),
]

_GROUPS = {"paper": paper, "controls": controls, "upcycling": upcycling, "further": further}


def list_rules(json_output: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """List all rules: the paper's seventeen, the controls, two that continue a trained model,
    further methods. IMEX has a name for any number of refinements: imex3-attn-mlp,
    imex4-ln-mlp-attn.

    Args:
        json_output: print everything about every rule as JSON.
    """
    if json_output:
        data = {
            group: [describe(rule) for rule in rules.values()] for group, rules in _GROUPS.items()
        }
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(
        caption="extra: parameters beyond gradient descent in the paper's small model; "
        "streams start from tables of their own unless it says otherwise; imex3-attn-mlp and so "
        "on have more refinements"
    )
    heads = ["rule", "label", "attn + mlp", "coefficients", "streams", "extra"]
    if console.width < 130:  # a narrow terminal: the names say most of what the labels do
        heads.remove("label")
    for head in heads:
        wraps = head in ("label", "coefficients")
        table.add_column(head, justify="right" if head == "extra" else "left", no_wrap=not wraps)
    for group in _GROUPS.values():
        for row in summary_rows(group.values()):
            table.add_row(*(row[head] for head in heads))
        table.add_section()
    console.print(table)


def show_rule(
    rule: tyro.conf.Positional[RuleName],
    format: Literal["both", "unicode", "latex", "toml", "json"] = "both",
) -> None:
    """Show one rule: its block's equations, streams and coefficients.

    Args:
        rule: which rule.
        format: the equations as Unicode text and LaTeX, one of them, the rule as a file to change
            (toml), or everything as JSON.
    """
    found = get_rule(rule)
    data = {**describe(found), "integrator": integrator_text(found)}
    if format == "json":
        print(json.dumps(data, indent=2, ensure_ascii=False))
    elif format == "toml":
        print(toml_text(found), end="")
    elif format == "latex":
        print(data["latex"])
    elif format == "unicode":
        print("\n".join(data["unicode"]))
    else:
        print(f"{full_text(found)}\n  {integrator_text(found)}\n\nLaTeX:\n{data['latex']}")


def diagram(
    rule: tyro.conf.Positional[RuleName],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE.svg|png|pdf")],
) -> None:
    """Draw one rule's block.

    Args:
        rule: which rule.
        out: where to; the ending says in which format.
    """
    from yuriiformer.methods.drawing.diagram import draw_rule

    print(draw_rule(get_rule(rule), out))


def run(arguments: list[str]) -> None:
    """``yurii rules [list|show|diagram]``; alone it lists."""
    if not arguments or (arguments[0].startswith("--") and arguments[0] != "--help"):
        arguments = ["list", *arguments]
    commands: dict[str, Any] = {"list": list_rules, "show": show_rule, "diagram": diagram}
    parse_command("yurii rules", commands, arguments)
