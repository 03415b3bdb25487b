"""What a suite is: the form of its definition, its runs, and what it is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from yuriiformer.comparison.archived_run import ENDING
from yuriiformer.comparison.arms import ArmSpec
from yuriiformer.comparison.study import HYPOTHESIS, Metric, Study
from yuriiformer.files import read_json
from yuriiformer.reading import Each, count, file_name, one_of, path_text, plain_text
from yuriiformer.runs.checkpoint import FINAL, MANIFEST
from yuriiformer.runs.folder import RunFolder

ARM: dict[str, Any] = {"slug": file_name, "label": plain_text, "rule?": str, "settings?": dict}
STUDY: dict[str, Any] = {
    "definition": {
        "title": plain_text,
        "question": str,
        "preset": file_name,
        "metric": one_of(*get_args(Metric)),
        "settings": dict,
        "baseline": (str, None),
        "families": Each(str),
        "seeds": [int],
        "arms": [{"label": plain_text}],
        "hypotheses": [HYPOTHESIS],
    },
    "history": [
        {
            "finished": count,
            "arms": [plain_text],
            "seeds": [int],
            "hypotheses": [plain_text],
            "text": str,
        }
    ],
}
DEFINITION: dict[str, Any] = {  # the form of suite.json, and of what an archive keeps of it
    "format": int,
    "preset": file_name,  # it names files of a report
    "threads?": (count, None),
    "baseline?": (str, None),
    "data": {"folder?": path_text},
    "init_from?": (path_text, None),
    "arms": [ARM],
    "seeds": [int],
    "commands?": [str],
    "study?": STUDY,
}


@dataclass(frozen=True)
class RunSpec:
    """One run of a suite."""

    slug: str
    label: str
    seed: int
    suite: Path
    steps: int
    init_from: str | None = None  # the model that it begins from

    @property
    def name(self) -> str:
        return f"{self.slug}/seed-{self.seed}"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.suite / "runs" / self.name)

    @property
    def config_file(self) -> Path:
        return self.suite / "configs" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.suite / "logs" / f"{self.name}.log"

    @property
    def archived(self) -> Path:
        """The file of a run that was finished in the archive that the suite began from."""
        return self.suite / "archived" / f"{self.name}{ENDING}"

    @property
    def finished(self) -> bool:
        """Whether the run is archived, or its final model exists, which a run writes last."""
        if self.archived.exists():
            return True
        try:
            found = read_json(self.folder.checkpoints / FINAL / MANIFEST)
            return int(found["about"]["step"]) >= self.steps
        except (ValueError, KeyError, TypeError):
            return False


@dataclass(frozen=True)
class Request:
    """What a suite is asked to run. ``common`` settings are every arm's. In ``init_from``, the
    model that runs begin from, ``{seed}`` stands for the run's seed."""

    preset: str
    arms: Sequence[ArmSpec]
    seeds: Sequence[int]
    data: Mapping[str, Any]
    common: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    baseline: str | None = None
    study: Study | None = None
    init_from: str | None = None


def of_seed(init_from: str | None, seed: int) -> str | None:
    return None if init_from is None else init_from.replace("{seed}", str(seed))


def history_entry(text: str, finished: int, added: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of the history: what was added, and how many runs had finished by then."""
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "finished": finished,
        "arms": [arm["label"] for arm in added["arms"]],
        "seeds": list(added["seeds"]),
        "hypotheses": [each["claim"] for each in added["hypotheses"]],
        "text": text,
    }
