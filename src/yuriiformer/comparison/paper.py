"""The paper's figures (``paper_figures.toml``) and its claims in words (``paper_claims.toml``), and
whether they belong beside runs.

They belong beside runs of the paper's setting, data and rule. The setting is the whole
configuration but the rule, the seed and the machine (`paper_preset`). The data are judged by their
source and the paper's own counts. A rule that was varied, an arm that differs in a setting, a run
that began from a trained model have no figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from yuriiformer.comparison.hypotheses import StudyRecord, Verdict, judge
from yuriiformer.comparison.study import Hypothesis
from yuriiformer.config import Machine, TrainConfig, differences
from yuriiformer.data.paper_corpora import CORPORA, DataMatch, match_data
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.files import packaged_table
from yuriiformer.methods.catalog import BASELINE, paper
from yuriiformer.methods.rule import Rule
from yuriiformer.training.presets import preset

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Arm, Comparison
    from yuriiformer.runs.loading import LoadedModel
    from yuriiformer.runs.run import Run

MARK = "†"
FOOTNOTE = (
    f"{MARK} The paper's IMEX rows are labelled AMA and MAM, and it does not say which order of "
    "the oracles each is: this rule is one of the two figures, MAM / AMA."
)
# Fields that are no part of a setting: the paper does not say which sequences it validates on.
FREE = ("rule", "seed", "exact", "texts", "eval_blocks")
MACHINE = {part.name for part in fields(Machine)}


@dataclass(frozen=True)
class PaperFigure:
    """The paper's figures for a rule: one value per metric, or two candidates of unclear label."""

    best: tuple[float, ...]
    final: tuple[float, ...]
    train: tuple[float, ...]  # empty where the paper gives none
    labels: tuple[str, ...] = ()  # the paper's, of the candidates

    @property
    def unclear(self) -> bool:
        return bool(self.labels)

    def values(self, metric: str) -> tuple[float, ...]:
        """``best``, ``final`` or ``train``."""
        found: tuple[float, ...] = getattr(self, metric)
        return found

    def text(self, metric: str) -> str:
        """As printed; candidates as ``1.083 / 1.086 †``; empty where there is none."""
        values = " / ".join(f"{value:.3f}" for value in self.values(metric))
        return f"{values} {MARK}" if values and self.unclear else values


@cache
def _data() -> dict[str, Any]:
    return packaged_table("comparison/paper_figures.toml")


def paper_presets() -> tuple[str, ...]:
    """The settings that the paper has figures of."""
    return tuple(name for name, part in _data().items() if "losses" in part)


def paper_figure(preset_name: str | None, rule_name: str) -> PaperFigure | None:
    """The losses that the paper prints for a rule in one of its settings."""
    if preset_name not in paper_presets():
        return None
    part = _data()[preset_name]
    if rule_name in part["losses"]:
        return _figure([part["losses"][rule_name]])
    for family in part.get("unclear", ()):
        if rule_name in family["rules"]:
            labels = tuple(label for label in family if label not in ("family", "rules"))
            return replace(_figure([family[label] for label in labels]), labels=labels)
    return None


def is_papers(rule: Rule) -> bool:
    """Whether a rule is one of the paper's, unvaried: its equations, the starts of its streams, and
    its coefficients (all learned, one per block, from the usual starts)."""
    own = paper.get(rule.name)
    return own is not None and _made_of(own) == _made_of(rule)


def _made_of(rule: Rule) -> tuple[Any, ...]:
    return rule.assigns, dict(rule.streams), dict(rule.coefficients)


def _figure(rows: list[list[float]]) -> PaperFigure:
    """Rows of Best, Final and perhaps Train, one per candidate."""
    best, final, train = (tuple(row[i] for row in rows if i < len(row)) for i in range(3))
    return PaperFigure(best, final, train)


def paper_downstream(preset_name: str | None, rule_name: str) -> dict[str, float] | None:
    """acc_norm in % by task (`PAPER_TASKS`); its standard error is 0.5 for HellaSwag, 1.0 for
    ARC-Easy."""
    part = _data().get(preset_name or "", {})
    row = part.get("downstream", {}).get(rule_name) if isinstance(part, dict) else None
    return None if row is None else dict(zip(PAPER_TASKS, row, strict=True))


def task_references() -> dict[str, dict[str, float]]:
    """What others reach in the paper's tasks: by model, then by task."""
    found: dict[str, dict[str, float]] = {}
    for each in _data()["references"]:
        if "task" in each:
            found.setdefault(each["model"], {})[each["task"]] = each["value"]
    return found


def unclear_label(rule_name: str) -> tuple[str, str] | None:
    """The family and the letters of a rule whose label the paper leaves unclear, if it is one; the
    first letter is taken to be the explicit step, as in the first of a family's rules."""
    for part in _data().values():
        for family in part.get("unclear", ()) if isinstance(part, dict) else ():
            if rule_name in family["rules"]:
                return family["family"], ("AMA", "MAM")[family["rules"].index(rule_name)]
    return None


def paper_methods(shown: str) -> list[str]:
    """The rules that a table or figure of the paper shows, in its order."""
    return list(_data()["methods"][shown])


def paper_training(setting: str) -> list[str]:
    """A column of the paper's Table 1."""
    return [str(text) for text in _data()["training"][setting]]


def loss_references(setting: str) -> dict[str, float]:
    """The losses of others that the paper sets beside its own in a setting, by model."""
    told = [each for each in _data()["references"] if "loss" in each]
    return {each["model"]: each["loss"] for each in told if each["setting"] == setting}


def minimum_step(setting: str) -> int | None:
    """Around which step the paper's validation loss is lowest, where it says so."""
    part = _data().get(setting, {})
    return part.get("minimum_step") if isinstance(part, dict) else None


def paper_preset(config: TrainConfig) -> str | None:
    """Which of the paper's settings a run's configuration is, whatever its rule, seed and machine.

    The vocabulary must be GPT-2's, padded: losses over other tokens are other numbers.
    """
    for name in paper_presets():
        if not setting_differences(config, name):
            return name
    return None


def setting_differences(config: TrainConfig, name: str) -> dict[str, tuple[Any, Any]]:
    """The fields in which a run's configuration is not a setting of the paper: the paper's value,
    and its own."""
    return differences({"": _setting(preset(name, BASELINE))}, {"": _setting(config)})


def _setting(config: TrainConfig) -> dict[str, Any]:
    """The fields that make a setting, with the warmup that is meant where none is given."""
    data = config.to_dict()
    found = {**data["model"], **data["recipe"], **data["validation"]}
    found["warmup"] = config.recipe.warmup_steps
    return {key: value for key, value in found.items() if key not in FREE}


def setting_match(setting: str, run: Run | LoadedModel) -> DataMatch:
    """How far the data of a run are those of a setting."""
    if run.from_model:
        return DataMatch("other", "the runs began from a trained model")
    return match_data(CORPORA[setting.partition("-")[0]], run.data)


def own_setting(run: Run | LoadedModel) -> str | None:
    """The setting of the paper whose figures belong beside a run; None if there is none."""
    setting = paper_preset(TrainConfig.from_dict(run.saved["config"]))
    if setting is None or setting_match(setting, run).grade == "other":
        return None
    return setting


def match_remark(setting: str | None, run: Run) -> str:
    """What a report says of the paper's figures; empty where they belong without any remark."""
    if setting is None:
        return ""
    found = setting_match(setting, run)
    if found.grade == "same":
        return ""
    if found.grade == "near":
        return f"The paper's figures are of nearly the same data only: {found.said}."
    return f"The paper's figures are not shown: {found.said}."


def is_papers_arm(arm: Arm) -> bool:
    """Whether an arm is one of the paper's: its rule unvaried, no other setting than the baseline's
    but the machine's, and every run begun from random weights."""
    begun = not any(run.from_model for run in arm.runs)
    return is_papers(arm.rule) and set(arm.differs) <= MACHINE and begun


BEST = "best"  # what the claims on losses are about


@dataclass(frozen=True)
class Claim(Hypothesis):
    """A hypothesis whose arms are rules. ``says`` are the paper's words, ``where`` their place;
    ``metric`` is Best, or a task (then the difference is in percentage points)."""

    setting: str = ""
    says: str = ""
    where: str = ""
    metric: str = BEST
    note: str = ""


@cache
def paper_claims() -> tuple[Claim, ...]:
    """All of them, in the order of the table."""
    entries = packaged_table("comparison/paper_claims.toml")["claims"]
    return tuple(claim for entry in entries for claim in _claims(entry))


def _claims(entry: dict[str, Any]) -> list[Claim]:
    """One for each setting and each rule that the entry sets its arm against."""
    same = {key: value for key, value in entry.items() if key not in ("settings", "against")}
    return [
        Claim(claim=_words(entry, against), against=against, setting=setting, **same)
        for setting in entry["settings"]
        for against in entry["against"]
    ]


def _words(entry: dict[str, Any], against: str) -> str:
    """``Polyak+Euler is lower than GD+Euler``, and of a task in what."""
    arm, other = (paper[name].label for name in (entry["arm"], against))
    task = PAPER_TASKS.get(entry.get("metric", BEST))
    return f"{arm} is {entry['direction']} than {other}" + (f" in {task}" if task else "")


def judge_claims(comparison: Comparison) -> list[Verdict]:
    """A verdict on every claim of the runs' setting; none where the paper's figures do not
    belong."""
    asked = [claim for claim in paper_claims() if claim.setting == comparison.papers]
    arms = {arm.rule.name: arm for arm in comparison.arms if comparison.paper_setting(arm)}
    found: dict[Claim, Verdict] = {}
    for metric in dict.fromkeys(claim.metric for claim in asked):
        some = [claim for claim in asked if claim.metric == metric]
        if metric == BEST or any(arm.values(metric) for arm in arms.values()):
            found |= zip(some, _judge(comparison, some, metric, arms), strict=True)
    return list(found.values())


def _judge(
    comparison: Comparison, claims: Sequence[Claim], metric: str, arms: dict[str, Arm]
) -> list[Verdict]:
    """Those of one metric, by the rules of a study."""
    definition = {
        "title": "The paper's claims",
        "question": "",
        "metric": metric,
        "seeds": comparison.seeds,
        "hypotheses": [asdict(claim) for claim in claims],
    }
    known = [replace(arm, label=name) for name, arm in arms.items()]
    verdicts = judge(StudyRecord(definition, []), known)
    return [
        replace(verdict, hypothesis=claim, reason=_reason(claim, verdict, arms))
        for claim, verdict in zip(claims, verdicts, strict=True)
    ]


def _reason(claim: Claim, verdict: Verdict, arms: dict[str, Arm]) -> str:
    missing = [paper[name].label for name in (claim.arm, claim.against) if name not in arms]
    said = f"{' and '.join(missing)} not run" if missing else verdict.reason
    return "; ".join(filter(None, [said, claim.note]))
