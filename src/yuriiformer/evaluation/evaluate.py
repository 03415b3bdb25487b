"""A trained model measured: validation loss and downstream tasks, kept beside it as JSON, and shown
as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from yuriiformer import __version__
from yuriiformer.config import Blocks
from yuriiformer.data.store import TokenStore
from yuriiformer.display.columns import aligned
from yuriiformer.errors import YuriiError
from yuriiformer.evaluation.local_tasks import (
    BATCH_TOKENS,
    PAPER_TASKS,
    TaskSpec,
    local_task,
    parse_tasks,
)
from yuriiformer.evaluation.scoring import holds_answers
from yuriiformer.evaluation.validation import (
    BITS_PER_BYTE,
    Tell,
    as_trained,
    exact_windows,
    protocol_windows,
    silent,
)
from yuriiformer.files import claim_folder, read_json, write_json
from yuriiformer.model.config import weights_name
from yuriiformer.model.device import choose_device
from yuriiformer.runs.checkpoint import MANIFEST
from yuriiformer.runs.loading import LoadedModel, open_model

Result = dict[str, Any]
EVALUATION = "evaluation"  # the folder of results in a run's
CACHE = "cache.jsonl"  # of the tasks' answers
SEQUENCES = 4800  # of a validation, where no run says: the paper's
FIRST: Blocks = "first"
PERCENT = ("acc", "exact_match", "f1", "em", "mcc")  # metrics that are shares


@dataclass(frozen=True)
class Evaluator:
    """A model, the data it is measured on (its own, unless others are asked for), and the folder
    of the results. What was measured of the same weights before is not measured again."""

    loaded: LoadedModel
    data: Path | None
    out: Path

    @classmethod
    def open(
        cls,
        path: Path,
        checkpoint: str | None = None,
        *,
        data: Path | None = None,
        out: Path | None = None,
        device: str = "auto",
    ) -> Evaluator:
        places = [data] if data else []
        loaded = open_model(path, checkpoint, places, device=choose_device(device))
        home = loaded.path.resolve()
        beside = home.with_name(f"{home.name}-evaluation")
        inside = out is None and bool(loaded.saved)  # a run's own folder: damage is replaced
        out = out or (home / EVALUATION if loaded.saved else beside)
        claim_folder(out, lambda folder: inside or _is_evaluation(folder), "an evaluation")
        return cls(loaded, data, out)

    @cached_property
    def store(self) -> TokenStore:
        """The data; tasks need none."""
        store = TokenStore.open(self.data) if self.data else self.loaded.store
        model = self.loaded.model.config
        store.check_model(model.vocab_size, model.valid_vocab)
        return store

    @property
    def about(self) -> Result:
        """Which model this is."""
        loaded = self.loaded
        known = {"run": str(loaded.path), **loaded.about} if loaded.saved else dict(loaded.about)
        if loaded.recorded is not None:
            known["recorded_val_loss"] = loaded.recorded
        return {**known, "rule": loaded.rule.name}

    @property
    def own_data(self) -> bool:
        """Whether the validation split is the one that the run was judged by."""
        known = self.loaded.data
        own = self.store.identity.get("val_sha256")
        same_hash = None in (own, known.get("val_sha256")) or own == known["val_sha256"]
        return bool(known.get("val_tokens") == len(self.store.val) and same_hash)

    @property
    def _name(self) -> str:
        return str(self.loaded.about.get("checkpoint", "model"))

    def validation(self, tell: Callable[[str], Tell] = lambda name: silent) -> Result:
        """By the paper's protocol and exact. ``tell(name)`` gives the function that is called with
        the progress."""
        model, store, context = self.loaded.model, self.store, self.loaded.model.config.context
        settings = self.loaded.saved.get("config", {}).get("validation", {})
        sequences = int(settings.get("eval_sequences", SEQUENCES))
        blocks = settings.get("eval_blocks", FIRST)
        path = self.out / f"validation-{self._name}.json"
        made_from = {
            "sha256": self.loaded.about["sha256"],
            "data": str(store.folder.resolve()),
            "val_tokens": len(store.val),
            "val_sha256": store.identity.get("val_sha256"),
            "eval_sequences": sequences,
            "eval_blocks": blocks,
            "context": context,
            "device": model.token_table.device.type,
        }
        found = {"eval_blocks": FIRST, **read_json(path)}  # older results do not say
        whole = all(isinstance(found.get(part), dict) for part in ("protocol", "exact"))
        if whole and all(found.get(key) == value for key, value in made_from.items()):
            return found
        size = store.meta["splits"]["val"]["text_bytes"] if store.meta else None
        with as_trained(model, self.loaded.saved) as dtype:
            windows = protocol_windows(store, context, sequences, blocks)
            given = windows.loss(model, tell=tell("validation"))
            exact = exact_windows(store, context).loss(model, tell=tell("exact validation"))
        found = {
            **self.about,
            **made_from,
            **_versions(),
            "dtype": dtype,
            "own_data": self.own_data,
            "protocol": given.to_dict(),
            "exact": {
                **exact.to_dict(),
                "text_bytes": size,
                "bits_per_byte": exact.bits_per_byte(size) if size else None,
                "note": BITS_PER_BYTE if size else "no bits per byte: the tokeniser is not known",
            },
        }
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(path, found)
        return found

    def tasks(
        self,
        specs: Sequence[TaskSpec],
        limit: int | None,
        data: Path | None,
        batch_tokens: int,
        begin: Callable[[TaskSpec], None] = lambda spec: None,
        tell: Tell = silent,
    ) -> Result:
        """Each task's result, by its name: of its first ``limit`` items, from local files where a
        folder is given."""
        from yuriiformer.evaluation.harness import YuriiLM  # noqa: PLC0415  they are slow
        from yuriiformer.evaluation.tasks import run_tasks  # noqa: PLC0415

        self.out.mkdir(parents=True, exist_ok=True)
        found: Result = {}
        lm = YuriiLM(
            self.loaded.model,
            self.loaded.need_tokenizer(),
            batch_tokens=batch_tokens,
            cache=self.out / CACHE,
            tell=tell,
        )
        for spec, result in run_tasks(lm, specs, limit, data, begin):
            found[str(spec)] = {**self.about, **result, **_versions()}
            write_json(self.out / result_name(spec, self._name, limit), found[str(spec)])
        return found


def result_name(spec: TaskSpec, checkpoint: str, limit: int | None) -> str:
    """The file of a task's result."""
    return f"{spec}-{checkpoint}{'' if limit is None else f'-first-{limit}'}.json"


def is_evaluated(
    run: Path, checkpoint: str, specs: Sequence[TaskSpec], limit: int | None, *, validation: bool
) -> bool:
    """Whether a run's folder has all of these results, of the checkpoint as it is now."""
    manifest = read_json(run / "checkpoints" / checkpoint / MANIFEST)
    files = manifest.get("files", {})
    weights = files.get(weights_name(files), {}).get("sha256")
    names = [result_name(spec, checkpoint, limit) for spec in specs]
    names += [f"validation-{checkpoint}.json"] * validation
    found = [read_json(run / EVALUATION / name).get("sha256") for name in names]
    return weights is not None and all(sha == weights for sha in found)


def evaluate(
    path: str | Path,
    checkpoint: str | None = None,
    *,
    validation: bool = True,
    tasks: Sequence[str] = (),
    tasks_data: str | Path | None = None,
    limit: int | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    device: str = "auto",
) -> Result:
    """Measure any model, as ``yurii evaluate`` does; results are kept in ``out`` too.

    Args:
        path: a model (see `open_model`).
        checkpoint: of a run: ``best`` (by validation loss; the default), ``final`` or ``last``.
        validation: whether to measure the validation loss: ``["validation"]["exact"]["loss"]``.
        tasks: of lm-evaluation-harness: ``"paper"``, ``"NAME"`` or ``"NAME@SHOTS"``.
        tasks_data: a folder with local files of HellaSwag and ARC-Easy.
        limit: only this many items of each task, the first ones.
        data: prepared data, where they are not the run's own or were moved.
        out: a folder; ``evaluation`` in the run's if not given.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
    """
    specs, local = parse_tasks(tasks) if tasks else [], _path(tasks_data)
    check_tasks(specs, local)
    found = Evaluator.open(Path(path), checkpoint, data=_path(data), out=_path(out), device=device)
    results: Result = {**found.about, "results": str(found.out)}
    if validation:
        results["validation"] = found.validation()
    if specs:
        results["tasks"] = found.tasks(specs, limit, local, BATCH_TOKENS)
    return results


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _is_evaluation(folder: Path) -> bool:
    """Whether a folder holds nothing but results of evaluations, and of a killed one its answers
    and the part of a result."""
    inside = {path.name: path for path in folder.iterdir()}
    results = [path for name, path in inside.items() if name.endswith(".json")]
    others = {name for name in inside if not name.endswith((".json", ".json.part"))}
    known = all("sha256" in read_json(path) for path in results)
    return known and others <= {CACHE} and (not others or holds_answers(inside[CACHE]))


def check_tasks(tasks: Sequence[TaskSpec], data: Path | None) -> None:
    """What can be known to be missing before anything is measured."""
    if tasks and find_spec("lm_eval") is None:
        raise YuriiError("--tasks needs the package 'lm_eval': pip install 'yuriiformer[eval]'")
    for spec in tasks if data is not None else ():
        local_task(spec, data or Path())


def _versions() -> Result:
    """The versions that the numbers depend on."""
    return {"versions": {"yuriiformer": __version__, "torch": torch.__version__}}


def validation_text(found: Mapping[str, Any], *, judged: bool) -> str:
    """The losses; ``judged``: whether a run has a validation split of its own."""
    what = found.get("model")
    if "step" in found:
        what = f"{found['checkpoint']} checkpoint, step {found['step']:,}"
    lines = [f"{found['rule']}, {what}", ""]
    rows: list[tuple[str, ...]] = [("", "loss", "perplexity", "bits/byte", "tokens")]
    by = f"protocol ({found['eval_sequences']:,} sequences)"
    for label, part in ((by, found["protocol"]), ("exact", found["exact"])):
        bits = part.get("bits_per_byte")
        losses = f"{part['loss']:.4f}", f"{part['perplexity']:.4g}", f"{bits:.4f}" if bits else ""
        rows.append((label, *losses, f"{part['tokens']:,}"))
    lines += aligned(rows)
    if "recorded_val_loss" in found and found["own_data"]:
        lines.append(f"the run recorded {found['recorded_val_loss']:.4f} by the protocol")
    if judged and not found["own_data"]:
        lines.append("note: this is not the validation split that the run was judged by")
    return "\n".join([*lines, found["exact"]["note"]])


def tasks_text(found: Mapping[str, Any], others: Mapping[str, Mapping[str, float]]) -> str:
    """A row per task, beside what ``others`` (the paper, released models) reach in it."""
    rows: list[tuple[str, ...]] = [("task", "metric", "value", "± stderr", "items", *others)]
    notes = []
    for label, result in found.items():
        theirs = [each.get(label) for each in others.values()]
        beside = ["" if value is None else f"{value:.4g}" for value in theirs]
        for name, scores in result["scores"].items():
            alone = len(result["scores"]) == 1
            title = PAPER_TASKS.get(label, label if alone else f"  {name}")
            if scores:  # a group may have no score of its own
                rows.append((title, *_score(scores, result["items"].get(name)), *beside))
        cut = result.get("truncated_requests", 0)
        notes.append(
            f"{label}: scored on the {result['split']} split, examples: {result['examples_from']}"
            + (f"; {cut:,} of {result['requests']:,} texts cut from the left" if cut else "")
            + (f"; the first {result['limit']:,} items only" if result["limit"] else "")
        )
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    shown = aligned([tuple(row[place] for place in kept) for row in rows])
    return "\n".join([*shown, *notes])


def _score(scores: Mapping[str, Any], items: int | None) -> tuple[str, ...]:
    """Metric, value, standard error and number of items."""
    metric = next((name for name in ("acc_norm", *PERCENT) if name in scores), None)
    metric = metric or next(iter(scores))
    percent = metric.partition(",")[0].startswith(PERCENT)
    value, stderr = (
        "" if number is None else f"{100 * number:.2f}" if percent else f"{number:.4g}"
        for number in (scores[metric]["value"], scores[metric]["stderr"])
    )
    name = f"{metric} %" if percent else metric
    return name, value, stderr, "" if items is None else f"{items:,}"
