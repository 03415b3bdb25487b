"""A suite is a folder:

suite.json                    what is compared: preset, arms, seeds, data; the study, if any
configs/ARM/seed-0.json       the configuration that each run is started with
runs/ARM/seed-0/              the runs, ordinary ones
archived/ARM/seed-0.json.gz   runs that were finished in the archive that the suite began from
logs/ARM/seed-0.log           what each said
failures.json                 runs whose last attempt failed, and why
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from yuriiformer.comparison.arms import ArmSpec, check_names
from yuriiformer.comparison.definition import DEFINITION, Request, RunSpec, history_entry, of_seed
from yuriiformer.comparison.study import Study, grown
from yuriiformer.config import TrainConfig, differences
from yuriiformer.display.columns import printable
from yuriiformer.errors import ConfigError, RunError, YuriiError, one_line
from yuriiformer.files import claim_folder, read_json, take_lock, write_json
from yuriiformer.reading import path_text, read_object

FORMAT = 1
SUITE = "suite.json"


def _begun(folder: Path) -> bool:
    """Whether a folder holds a suite, or one that was stopped before it wrote its definition."""
    if (folder / SUITE).is_file():
        SuiteFolder(folder).read()
        return True
    names = {path.name for path in folder.iterdir()}
    return ".lock" in names and names <= {".lock", "archived", "configs", f"{SUITE}.part"}


class SuiteFolder:
    """Reads and extends the folder of a suite."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.file = self.path / SUITE
        self.failures_file = self.path / "failures.json"

    @property
    def exists(self) -> bool:
        return self.file.is_file()

    @property
    def from_archive(self) -> bool:
        return (self.path / "archived").is_dir()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Lock the suite against other processes."""
        claim_folder(self.path, _begun, "a suite")
        busy = f"another process is running the suite {self.path}"
        with take_lock(self.path / ".lock", busy):
            yield

    def read(self) -> dict[str, Any]:
        form = {**DEFINITION, "data": {"folder": path_text}}
        data = read_object(self.file, form, RunError, FORMAT)
        return {"threads": None, "commands": [], **data}

    def failures(self) -> dict[str, str]:
        """Runs by name, and what their last try ended with."""
        found = read_json(self.failures_file).items()
        return {name: printable(one_line(ValueError(text))) for name, text in found}

    def note_failure(self, run: RunSpec, text: str | None) -> None:
        """Record that a run failed, or (None) that it no longer does."""
        known = self.failures()
        if text is None and run.name not in known:
            return
        kept = {name: what for name, what in known.items() if name != run.name}
        write_json(self.failures_file, kept if text is None else {**kept, run.name: text})

    def request(self, data: Mapping[str, Any], seeds: Sequence[int]) -> Request:
        """All arms so far, with other seeds."""
        saved = self.read()
        arms = []
        for entry in saved["arms"]:
            name, label = entry["slug"], entry["label"]
            known = [RunSpec(name, label, seed, self.path, 0) for seed in saved["seeds"]]
            config = next((self._stored(run) for run in known if run.config_file.exists()), None)
            if config is not None:
                rule = config.model.rule
                settings = entry.get("settings", {})
                arms.append(ArmSpec(entry["label"], entry["slug"], rule, settings))
        kept = {"threads": saved["threads"], "init_from": saved.get("init_from")}
        return Request(saved["preset"], arms, seeds, data, **kept)

    def extend(self, request: Request, command: str) -> list[RunSpec]:
        """Add arms and seeds to what is there, which stays; the runs that were asked for."""
        arms = [replace(arm, settings={**request.common, **arm.settings}) for arm in request.arms]
        saved = self.read() if self.exists else {"arms": [], "seeds": [], "commands": []}
        study = self._grown(saved, request.study)
        if self.exists:
            self.check_data(request.data)
            self._check_preset(saved, request)
            self._check_model(saved, request)
        threads = saved.get("threads") or request.threads
        wanted = {arm.slug for arm in arms}
        others = [arm for arm in saved["arms"] if arm["slug"] not in wanted]
        check_names([*others, *(arm.entry() for arm in arms)])
        runs = []
        for seed in request.seeds:  # all arms of a seed first, so that arms can be compared early
            for arm in arms:
                config = arm.config(request.preset, seed, {"threads": threads})
                model = of_seed(request.init_from, seed)
                run = RunSpec(arm.slug, arm.label, seed, self.path, config.recipe.steps, model)
                self._check_config(run, config)
                runs.append((run, config))
        commands = saved["commands"]
        self.path.mkdir(parents=True, exist_ok=True)
        entries = {arm["slug"]: arm for arm in saved["arms"]}
        entries |= {arm.slug: arm.entry() for arm in arms}
        definition = {
            "format": FORMAT,
            "preset": request.preset,
            "threads": threads,
            "baseline": request.baseline or saved.get("baseline"),
            "data": dict(request.data),
            **({"init_from": request.init_from} if request.init_from else {}),
            "arms": list(entries.values()),
            "seeds": sorted({*saved["seeds"], *request.seeds}),
            "commands": commands if command in commands else [*commands, command],
            **({"study": study} if study else {}),
        }
        write_json(self.file, definition)
        for run, config in runs:
            if not run.folder.exists:  # a run that has begun keeps its configuration
                run.config_file.parent.mkdir(parents=True, exist_ok=True)
                write_json(run.config_file, config.to_dict())
        return [run for run, _ in runs]

    def runs(self) -> list[RunSpec]:
        """All that were ever asked for."""
        saved = self.read()
        found = []
        for seed in saved["seeds"]:
            for arm in saved["arms"]:
                model = of_seed(saved.get("init_from"), seed)
                run = RunSpec(arm["slug"], arm["label"], seed, self.path, 0, model)
                if run.config_file.exists():
                    found.append(replace(run, steps=self._stored(run).recipe.steps))
        return found

    def _stored(self, run: RunSpec) -> TrainConfig:
        data = read_object(run.config_file, dict, RunError)
        try:
            return TrainConfig.from_dict(data)
        except YuriiError as error:
            raise RunError(f"{run.config_file} is damaged: {error}") from None

    def _grown(self, saved: Mapping[str, Any], study: Study | None) -> dict[str, Any] | None:
        """The study as the suite keeps it: its definition, and the history of additions."""
        before = saved.get("study")
        if study is None:
            if before is not None:
                raise ConfigError(
                    f"{self.path} carries out the study {before['definition']['title']!r}: add to "
                    "its file and give --study FILE again, or choose another --out"
                )
            return None
        now = study.definition()
        if not self.exists:
            return {"definition": now, "history": [history_entry(study.text, 0, now)]}
        if before is None:
            raise ConfigError(f"{self.path} was begun without a study: choose another --out")
        try:
            added = grown(before["definition"], now)
        except ConfigError as error:
            raise ConfigError(
                f"{study.path} is not the study that {self.path} was begun with: {error}. A study "
                "that has begun can only grow (arms, seeds, hypotheses): choose another --out"
            ) from None
        if not any(added.values()):
            return dict(before)
        finished = sum(run.finished for run in self.runs())
        entry = history_entry(study.text, finished, added)
        return {"definition": now, "history": [*before["history"], entry]}

    def _check_preset(self, saved: Mapping[str, Any], request: Request) -> None:
        if saved["preset"] != request.preset:
            raise RunError(
                f"{self.path} compares with the preset {saved['preset']!r}, not "
                f"{request.preset!r}: choose another --out"
            )

    def _check_model(self, saved: Mapping[str, Any], request: Request) -> None:
        before = saved.get("init_from")
        if before is None and self.from_archive:  # an archive does not say where the model lay
            return
        if before != request.init_from:
            began = f"from {before}" if before else "without a model"
            raise RunError(
                f"the runs of {self.path} begin {began}: give the same --init-from, or choose "
                "another --out"
            )

    def check_data(self, data: Mapping[str, Any]) -> None:
        """Check that these are the suite's data, in whatever folder."""
        saved = self.read()
        for key, value in data.items():
            if key != "folder" and saved["data"].get(key) != value:
                raise RunError(
                    f"{self.path} compares runs on other data ({key} {saved['data'].get(key)!r:.40}"
                    f", now {value!r:.40}): choose another --out"
                )

    def _check_config(self, run: RunSpec, config: TrainConfig) -> None:
        if not run.config_file.exists():
            return
        before, after = self._stored(run).to_dict(), config.to_dict()
        changed = differences(before, after)
        # A run keeps its number of threads, and an archived one has its data's vocabulary.
        for name in ("threads", "vocab_size", "valid_vocab"):
            changed.pop(name, None)
        if changed:
            words = [f"{name} {old!s:.40} -> {new!s:.40}" for name, (old, new) in changed.items()]
            raise ConfigError(
                f"{self.path} has an arm {run.label!r} with another configuration "
                f"({', '.join(words)}): give "
                "this one another label (--arm 'LABEL: rule=...') or choose another --out"
            )
