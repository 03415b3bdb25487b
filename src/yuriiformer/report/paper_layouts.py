"""The layouts of the paper's five tables: rows, columns, captions, and its use of bold.

A layout is filled with values of runs or with the paper's own (`Values`). Rows are the paper's
methods in its order; what was not run is a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from yuriiformer.comparison.paper import MARK, paper_methods, unclear_label
from yuriiformer.config import TrainConfig
from yuriiformer.display.columns import in_units
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.methods.catalog import paper
from yuriiformer.report.cells import NONE

SIX, STANDARD, OTHERS = map(paper_methods, ("six", "standard", "others"))
LOSSES, BOTH = ("best", "final", "train"), ("best", "final")
UNCLEAR = (
    f"{MARK} The paper does not say which order of the oracles its letters AMA and MAM mean for "
    "IMEX: here the first letter is the explicit step. By the other reading the two rows of a pair "
    "change places."
)


@dataclass(frozen=True)
class Value:
    """A number of a table: as it is printed, and what of it is compared (None: nothing)."""

    text: str
    printed: float | None = None


MISSING = Value(NONE)
Values = Callable[[str, str], Value]  # of a rule, a metric


@dataclass(frozen=True)
class Item:
    """A cell: its text, bold or not."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Head:
    """A title over ``span`` columns."""

    text: str
    span: int = 1


@dataclass(frozen=True)
class PaperTable:
    """``form`` are the columns as LaTeX has them: l for text, c for numbers, | for a line."""

    caption: str
    form: str
    heads: Sequence[Sequence[Head]]
    rows: Sequence[Sequence[Item]]
    notes: Sequence[str] = ()
    label: str = ""
    wide: bool = False


def label_of(name: str) -> str:
    """A rule's name in the paper's tables; IMEX rows have the mark of the unclear label."""
    unclear = unclear_label(name)
    return paper[name].label if unclear is None else "{} ({}){}".format(*unclear, MARK)


def bold_lowest(column: Sequence[Value]) -> list[bool]:
    """The lowest, ties at the printed precision too; of a single value none is marked."""
    known = [each.printed for each in column if each.printed is not None]
    return [len(known) > 1 and each.printed == min(known) for each in column]


def bold_top_two(column: Sequence[Value]) -> list[bool]:
    """The two highest, ties at the printed precision too. A tie for the first place does not push
    others out of the second: the paper's own has two for the first and none for the second."""
    known = sorted((each.printed for each in column if each.printed is not None), reverse=True)
    return [
        len(known) > 1 and each.printed is not None and each.printed >= known[1] for each in column
    ]


def _block(
    rules: Sequence[str],
    columns: Iterable[tuple[Values, str]],
    bold: Callable[[Sequence[Value]], list[bool]],
) -> list[list[Item]]:
    """Rows of methods: the label, then a cell for each column."""
    made = []
    for values, metric in columns:
        column = [values(rule, metric) for rule in rules]
        flags = bold(column)
        made.append([Item(v.text, flag) for v, flag in zip(column, flags, strict=True)])
    labels = [Item(label_of(rule)) for rule in rules]
    return [list(row) for row in zip(labels, *made, strict=True)]


def tinystories_table(values: Values, slot: str, steps: str) -> PaperTable:
    """Table 2."""
    return PaperTable(
        f"TinyStories ({slot}; {steps} steps): next-token prediction losses (nats/token; lower is "
        f"better). Best = min validation loss; Final = validation loss at {steps} steps; Train "
        f"@{steps} = training loss at {steps}.",
        "lccc",
        [[Head("Method"), Head("Best"), Head("Final"), Head(f"Train @{steps}")]],
        _block(SIX, [(values, metric) for metric in LOSSES], bold_lowest),
        label="tab:tinystories-losses",
    )


def comprehensive_table(values: Values, slot: str, steps: str) -> PaperTable:
    """Table 5: blocks of one call of each oracle left, others right."""
    columns = [(values, metric) for metric in LOSSES]
    left, right = (_block(rules, columns, bold_lowest) for rules in (STANDARD, OTHERS))
    right += [[Item("")] * 4] * (len(left) - len(right))
    titles = [Head("Method"), Head("Best"), Head("Final"), Head(f"Train @{steps}")]
    panels = [Head("Standard compute (1 Attn + 1 MLP)", 4), Head("Non-standard compute", 4)]
    return PaperTable(
        f"TinyStories ({slot}; {steps} steps): comprehensive next-token prediction losses "
        "(nats/token; lower is better). Metrics: Best (minimum validation loss), Final (validation "
        f"loss at {steps} steps), Train @{steps} (training loss at {steps} steps). Bold indicates "
        "the best value within each panel (standard vs non-standard compute) for each metric; ties "
        "at the reported precision are boldfaced.",
        "lccc|lccc",
        [panels, [*titles, *titles]],
        [one + two for one, two in zip(left, right, strict=True)],
        [UNCLEAR],
        "tab:tinystories-comprehensive",
        wide=True,
    )


def openwebtext_table(values: Sequence[Values], slots: Sequence[str], steps: str) -> PaperTable:
    """Table 3."""
    columns = [(each, metric) for each in values for metric in BOTH]
    titles = [Head("Best"), Head("Final")] * len(values)
    return PaperTable(
        f"OpenWebText ({' and '.join(slots)}; {steps} steps): next-token prediction validation "
        "losses (nats/token; lower is better). Best = min validation loss; Final = validation loss "
        f"at {steps} steps.",
        "l" + "cc" * len(values),
        [[Head(""), *(Head(slot, 2) for slot in slots)], [Head("Method"), *titles]],
        _block(SIX, columns, bold_lowest),
        label="tab:openwebtext-losses",
    )


def accuracy_table(values: Sequence[Values], slots: Sequence[str]) -> PaperTable:
    """Table 4."""
    columns = [(each, task) for each in values for task in PAPER_TASKS]
    shots = [Head("10/25-shot", 2), Head("0-shot", 2)] * len(values)
    titles = [Head("HS"), Head("ARC")] * (2 * len(values))
    return PaperTable(
        "OpenWebText: length-normalized accuracy (acc_norm; %; higher is better) on HellaSwag (HS) "
        "and ARC-Easy (ARC) using the Language Model Evaluation Harness, evaluated at the "
        "best-validation checkpoint. Few-shot uses 10-shot HellaSwag and 25-shot ARC-Easy; 0-shot "
        "results are shown for reference. Errors are standard errors. Bold indicates the top-two "
        "methods in each column; ties at the reported precision are boldfaced.",
        "l" + "cccc" * len(values),
        [
            [Head(""), *(Head(slot, 4) for slot in slots)],
            [Head(""), *shots],
            [Head("Method"), *titles],
        ],
        _block(SIX, columns, bold_top_two),
        label="tab:openwebtext-downstream",
        wide=True,
    )


BUDGET = ("Model size", "Train steps", "Train tokens", "Warmup steps", "Muon LR", "AdamW LR")


def training_table(columns: Sequence[tuple[str, Sequence[str]]]) -> PaperTable:
    """Table 1: a column for each setting."""
    rows = zip(BUDGET, *(texts for _, texts in columns), strict=True)
    return PaperTable(
        "Training budgets and peak learning rates for TinyStories (TS) and OpenWebText (OWT). "
        "Train tokens = steps × tokens/step.",
        "l" + "c" * len(columns),
        [[Head(""), *(Head(title) for title, _ in columns)]],
        [[Item(text) for text in row] for row in rows],
        label="tab:training-hparams",
    )


def training_column(config: TrainConfig, parameters: float | None) -> list[str]:
    recipe = config.recipe
    rates = [
        f"{rate:g}" if rate >= 1e-3 else f"{rate:.0e}" for rate in (recipe.muon_lr, recipe.adamw_lr)
    ]
    return [
        NONE if parameters is None else in_units(parameters, "{:.1f}"),
        in_units(recipe.steps),
        in_units(recipe.steps * config.tokens_per_step, "{:.2f}"),
        in_units(recipe.warmup_steps),
        *(rate.replace("e-0", "e-") for rate in rates),
    ]
