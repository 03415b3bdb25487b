"""What is inside the models of a study: traces of its runs, as few numbers, beside its archive.

    python -m results.inside SUITE ARCHIVE --seeds 0 1 2 --arms gd-lie-trotter one-drift
    python -m results.inside --draw ARCHIVE FOLDER

The first traces the last model of each run on sequences spread over the validation split and writes
``ARCHIVE.inside.json``: means over all tokens, by arm and seed. The file has a checksum, and each
run in it has the exact loss that the archive has of it, so that both are known to be of one run.
Runs that the file has already stay in it, so a study can be traced while it grows. The second draws
the figures from that file alone.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yuriiformer.comparison.archive import SuiteRecord, read_archive, read_suite
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.errors import InputError, RunError
from yuriiformer.files import sha256_of_json, write_json
from yuriiformer.reading import Each, count, plain_text, read_object
from yuriiformer.runs.run import Run

FORMAT = 1
LAYERS = [(float, None)]  # a number by block; none where there is none
RUN: dict[str, Any] = {
    "arm": plain_text,
    "seed": count,
    "loss": float,
    "straightness": float,
    "length": float,
    "effective_depth": float,
    "turning": LAYERS,
    "step_length": LAYERS,
    "lens_loss": LAYERS,
    "norms": Each(LAYERS),
    "coefficients": Each(LAYERS),
}
FORM: dict[str, Any] = {
    "format": int,
    "sha256": plain_text,
    "sequences": count,
    "tokens": count,
    "val_sha256": plain_text,
    "runs": [RUN],
}


def inside_file(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.inside.json")


def trace_run(folder: Path, sequences: int, data: Sequence[Path] = ()) -> dict[str, Any]:
    """The numbers of one run: means over all tokens of so many sequences."""
    import torch  # noqa: PLC0415

    from yuriiformer.data.order import validation_starts  # noqa: PLC0415
    from yuriiformer.runs.loading import open_model  # noqa: PLC0415
    from yuriiformer.tracing.recorder import trace  # noqa: PLC0415

    loaded = open_model(folder, "final", data)
    model, val = loaded.model.eval(), loaded.store.val
    context = model.config.context
    found = []
    for start in validation_starts(len(val), context, sequences, spread=True):
        window = torch.as_tensor(val[start : start + context + 1].astype("int64"))
        found.append(trace(model, window[:-1], window[1:], top=1))

    def mean(values: list[Any]) -> float:
        return _short(torch.cat(values, dim=-1).nanmean().item())

    def by_layer(name: str) -> list[float | None]:
        rows = torch.cat([each.by_layer[name] for each in found], dim=-1)
        return [_short(value) for value in rows.nanmean(dim=-1).tolist()]

    streams = [name for name in found[0].by_layer if name.startswith("norm_")]
    names = found[0].coefficients[0]
    return {
        "straightness": mean([each.path["straightness"] for each in found]),
        "length": mean([each.path["length"] for each in found]),
        "effective_depth": mean([each.lens.effective_depth for each in found]),
        **{name: by_layer(name) for name in ("turning", "step_length", "lens_loss")},
        "norms": {name.removeprefix("norm_"): by_layer(name) for name in streams},
        "coefficients": {
            name: [_short(layer[name]) for layer in found[0].coefficients] for name in names
        },
    }


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def trace_suite(
    suite: Path, archive: Path, arms: Sequence[str], seeds: Sequence[int], sequences: int
) -> Path:
    """Trace the runs of a suite that an archive has too, and write the file beside the archive."""
    known = archived(read_archive(archive))
    record = read_suite(SuiteFolder(suite))
    data = [folder for folder in [Path(record.definition["data"]["folder"])] if folder.is_dir()]
    chosen = [
        each
        for each in record.entries
        if (not arms or each.label in arms) and (not seeds or each.seed in seeds)
    ]
    missing = set(arms) - {each.label for each in chosen}
    if missing or not chosen:
        raise InputError(f"{suite} has no such runs: {', '.join(sorted(missing)) or 'none chosen'}")
    runs = traced_before(archive, sequences)
    order = {(each.label, each.seed): place for place, each in enumerate(record.entries)}
    for each in chosen:
        at, run = (each.label, each.seed), each.run
        if at in runs or run is None or not run.finished or run.archived:
            continue  # measured before, or there is no model to trace
        if at not in known:
            print(f"{each.label}, seed {each.seed} is not in {archive} yet: left for later")
            continue
        if run.exact != known[at].exact:
            raise RunError(
                f"{each.label}, seed {each.seed}: {archive} has another run than {suite}"
            )
        print(f"{each.label}, seed {each.seed}", flush=True)
        numbers = trace_run(run.folder, sequences, data)
        runs[at] = {"arm": each.label, "seed": each.seed, "loss": run.exact, **numbers}
        _write(
            archive, sequences, known[at], [runs[at] for at in sorted(runs, key=order.__getitem__)]
        )
    if not runs:
        raise RunError(f"{suite} has no finished run that could be traced")
    return inside_file(archive)


def _write(archive: Path, sequences: int, first: Run, runs: list[dict[str, Any]]) -> None:
    content = {
        "sequences": sequences,
        "tokens": sequences * first.config.model.context,
        "val_sha256": first.saved["data"]["val_sha256"],
        "runs": runs,
    }
    data = {"format": FORMAT, "sha256": sha256_of_json(content), **content}
    write_json(inside_file(archive), data)


def traced_before(archive: Path, sequences: int) -> dict[tuple[str, int], dict[str, Any]]:
    """What the file has already: models are traced while they are there, some seeds at a time."""
    if not inside_file(archive).is_file():
        return {}
    before = read_inside(archive)
    if before["sequences"] != sequences:
        raise InputError(
            f"{inside_file(archive)} was measured on {before['sequences']} sequences: "
            f"--sequences {before['sequences']}, or remove it to start again"
        )
    return {(each["arm"], each["seed"]): each for each in before["runs"]}


def archived(record: SuiteRecord) -> dict[tuple[str, int], Run]:
    finished = [each for each in record.entries if each.run is not None and each.run.finished]
    return {(each.label, each.seed): each.run for each in finished if each.run is not None}


def read_inside(archive: Path) -> dict[str, Any]:
    """The file of an archive, checked: its sum, and that its runs are the archive's."""
    path = inside_file(archive)
    data = read_object(path, FORM, RunError, FORMAT)
    content = {key: value for key, value in data.items() if key not in ("format", "sha256")}
    if sha256_of_json(content) != data["sha256"]:
        raise RunError(f"{path} is damaged: its checksum does not fit")
    known = archived(read_archive(archive))
    for each in data["runs"]:
        run = known.get((each["arm"], each["seed"]))
        if run is None or run.exact != each["loss"]:
            raise RunError(f"{path}: {each['arm']}, seed {each['seed']} is not the archive's run")
    return data


def by_arm(data: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in data["runs"]:
        found.setdefault(each["arm"], []).append(each)
    return found


def main(words: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("source", type=Path, help="a suite; with --draw, an archive")
    options.add_argument("target", type=Path, help="its archive; with --draw, a folder")
    options.add_argument("--draw", action="store_true")
    options.add_argument("--arms", nargs="*", default=[])
    options.add_argument("--seeds", nargs="*", type=int, default=[])
    options.add_argument("--sequences", type=int, default=16)
    asked = options.parse_args(words)
    if asked.draw:
        from results.inside_figures import draw  # noqa: PLC0415

        for path in draw(asked.source, asked.target):
            print(path)
    else:
        print(trace_suite(asked.source, asked.target, asked.arms, asked.seeds, asked.sequences))
    return 0


if __name__ == "__main__":
    sys.exit(main())
