"""Damaged files and odd flags: every command ends with success or one clear line, never a trace.

    python -m tests.fuzz --count 5000 --seed 1

A case is a JSON file of a run, suite, archive, data folder or model with a structural mutation
(checksums made right again, so that the mutation is reached), or a flag with an odd value. Each is
given to the commands that read it. What ends in an exception, takes too long or writes outside its
folder is printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz_world import World, build, quiet
from yuriiformer.cli.main import main
from yuriiformer.comparison.archive import ZEROS
from yuriiformer.files import sha256_of_json

DEEP: Any = json.loads("[" * 90 + "]" * 90)
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**62, 10**30, 0.5, -0.0, 1e308, float("nan")),
    *(
        "",
        "x",
        "..",
        "../../outside",
        "/tmp/outside",
        "a\0b",
        "\x1b[31m",
        "\ud800",
        "=1+1",
        "9" * 400,
    ),
    *([], {}, [[]], [None], {"": None}, {"x": {"y": []}}, ["x"] * 50, DEEP),
]
WORDS = [
    *(
        "",
        "0",
        "-1",
        "1",
        "2",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e-320",
        "9" * 30,
        "9" * 5000,
        "0x10",
    ),
    *(
        "x",
        "..",
        "/dev/null",
        "/dev/zero",
        "a" * 300,
        "\udcff",
        "\x1b[31m",
        "=1",
        "None",
        "a=b",
        "[]",
    ),
    *("{}", "None None", "true", "nesterov-lie-trotter+", "x.toml", "bpe:", "hf:", "@", "paper@-1"),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value stands in plain data."""
    if path:
        yield path
    inner = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in inner:
        yield from places(value, (*path, key))


def mutated(data: Any, chance: random.Random) -> tuple[Any, str]:
    """The data with one or two values replaced, removed, doubled, renamed or nested."""
    data = copy.deepcopy(data)
    said = []
    for _ in range(chance.choice((1, 1, 1, 2))):
        found = list(places(data))
        if not found:
            return chance.choice(ODD), "replaced"
        path = chance.choice(found)
        parent = data
        for key in path[:-1]:
            parent = parent[key]
        last, how = (
            path[-1],
            chance.choice(("odd", "odd", "odd", "remove", "nest", "rename", "text")),
        )
        if how == "odd":
            parent[last] = copy.deepcopy(chance.choice(ODD))
        elif how == "remove":
            del parent[last]
        elif how == "nest":
            parent[last] = [parent[last]]
        elif how == "text":
            parent[last] = str(parent[last])
        elif isinstance(parent, dict):
            parent["\x1b odd"] = parent.pop(last)
        said.append(f"{how} {'.'.join(map(str, path))}")
    return data, ", ".join(said)


def sealed(name: str, data: Any) -> bytes:
    """As a file's bytes, its checksum right again."""
    if isinstance(data, dict) and name.endswith("manifest.json") and "sha256" in data:
        rest = {key: value for key, value in data.items() if key != "sha256"}
        with contextlib.suppress(ValueError, TypeError):
            data["sha256"] = sha256_of_json(rest)
    if isinstance(data, dict) and name.endswith("model.json") and "config" in data:
        with contextlib.suppress(ValueError, TypeError):
            data["config_sha256"] = sha256_of_json(data["config"])
    archive = name.endswith("archive.json") and isinstance(data, dict) and "sha256" in data
    if archive:
        data = {**data, "sha256": ZEROS}
    raw = json.dumps(data, indent=1).encode()
    if archive:
        raw = raw.replace(ZEROS.encode(), hashlib.sha256(raw).hexdigest().encode(), 1)
    return gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw


def broken(raw: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Bytes cut, flipped, or replaced by what is no data."""
    how = chance.choice(("cut", "flip", "deep", "digits", "empty"))
    place = chance.randrange(max(1, len(raw)))
    if how == "cut":
        return raw[:place], how
    if how == "flip":
        return raw[:place] + bytes([raw[place] ^ (1 << chance.randrange(8))]) + raw[
            place + 1 :
        ], how
    return {"deep": b"[" * 100_000, "digits": b'{"a": ' + b"9" * 9000 + b"}", "empty": b""}[
        how
    ], how


def problem(code: Any, said: str) -> str:
    """What is wrong with how a command ended."""
    if isinstance(code, str):
        return code
    if code == 2:  # one line says why, after what was said on the way
        *before, last = said.strip().splitlines() or [""]
        ours = last.startswith("yurii: ") and not any(line.startswith("yurii: ") for line in before)
        return "" if ours and "\x1b" not in said else f"not one clear line: {said!r:.400}"
    return "" if code in (0, 1, 2, 3, 75) else f"exit code {code}"


def file_cases(
    world: World, chance: random.Random
) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """One mutated file after the other: its name, and what finds the problems with it."""
    originals = {name: (world.home / name).read_bytes() for name in world.readers}
    while True:
        name = chance.choice(list(world.readers))
        raw, path = originals[name], world.home / name
        if chance.random() < 0.85:
            plain = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
            data, how = mutated(plain, chance)
            changed = sealed(name, data)
        else:
            changed, how = broken(raw, chance)

        def check(name: str = name, path: Path = path, changed: bytes = changed) -> list[str]:
            outside = sorted(path for path in world.home.parent.iterdir())
            path.write_bytes(changed)
            _reseal(world, name, originals)
            try:
                found = [problem(*quiet(words)) for words in world.readers[name]]
            finally:
                _put_back(world, originals)
            if sorted(world.home.parent.iterdir()) != outside:
                found.append("something was written outside")
            return [each for each in found if each]

        yield f"{name}: {how}", check


def _reseal(world: World, name: str, originals: dict[str, bytes]) -> None:
    """The sums of files that tell of the mutated one."""
    path = world.home / name
    if name.endswith((".gz", "state.json", "best/model.json")):
        owner = (
            "archive/archive.json"
            if name.endswith(".gz")
            else str(Path(name).with_name("manifest.json"))
        )
        data = json.loads((world.home / owner).read_bytes())
        if name.endswith(".gz"):
            for each in data["runs"].values():
                each["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            told = data["files"][path.name]
            told |= {
                "bytes": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
        originals.setdefault(owner, (world.home / owner).read_bytes())
        (world.home / owner).write_bytes(sealed(owner, data))


def _put_back(world: World, originals: dict[str, bytes]) -> None:
    for name, raw in originals.items():
        (world.home / name).parent.mkdir(parents=True, exist_ok=True)
        (world.home / name).write_bytes(raw)
    shutil.rmtree(world.home / "out", ignore_errors=True)


def flag_cases(
    world: World, chance: random.Random
) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """One flag with an odd value after the other."""
    h = str(world.home)
    bases = {
        "train": ["--data", f"{h}/none", "--out", f"{h}/out"],  # flags alone: a run takes long
        "plan": ["--n-layer", "1", "--d-model", "8"],
        "suite": [
            "--data",
            f"{h}/data",
            "--out",
            f"{h}/out",
            "--rules",
            "gd-lie-trotter",
            "--print-commands",
        ],
        "sample": [f"{h}/model", "--max-new-tokens", "2"],
        "evaluate": [f"{h}/run", "--out", f"{h}/out"],
        "report": [f"{h}/run", "--no-figures", "--no-samples", "--out", f"{h}/out"],
        "trace": [f"{h}/run", "--sequences", "1", "--max-tokens", "2", "--out", f"{h}/out"],
        "lab quadratic": [
            "--rules",
            "gd-lie-trotter",
            "--steps",
            "2",
            "--no-figures",
            "--out",
            f"{h}/out",
        ],
        "lab particles": [
            "--rules",
            "gd-lie-trotter",
            "--steps",
            "2",
            "--no-figures",
            "--out",
            f"{h}/out",
        ],
        "prepare tales": [
            "--stories",
            "5",
            "--tokenizer",
            "bytes",
            "--workers",
            "1",
            "--out",
            f"{h}/out",
        ],
        "rules show": ["gd-lie-trotter"],
        "data show": [f"{h}/data"],
    }
    flags = {}
    for command in bases:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*command.split(), "--help"])
        flags[command] = sorted(
            set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", out.getvalue())) - {"--help"}
        )
    while True:
        command = chance.choice(list(bases))
        if not flags[command]:
            continue
        flag, value = chance.choice(flags[command]), chance.choice(WORDS)
        if flag == "--tasks" or (flag in LONG and value.isdigit()):
            continue  # a long run, or the hub, is what was asked for
        words = [*command.split(), *bases[command], flag, value]

        def check(words: list[str] = words) -> list[str]:
            home, here = Path(h, "cwd"), os.getcwd()
            home.mkdir(exist_ok=True)
            os.chdir(home)
            try:
                found = problem(*quiet(words))
            finally:
                os.chdir(here)
                shutil.rmtree(home, ignore_errors=True)
                shutil.rmtree(f"{h}/out", ignore_errors=True)
                shutil.rmtree(f"{h}/out.partial", ignore_errors=True)
            return [found] if found else []

        yield f"{command} {flag} {value[:40]!r}", check


LONG = (
    "--stories",
    "--steps",
    "--max-new-tokens",
    "-n",
    "--n",
    "--tokens",
    "--dim",
    "--workers",
    "--wandb",
    "--seeds",
    "--from",
)


def fuzz(home: Path, count: int, seed: int) -> list[str]:
    """What went wrong in so many cases."""
    chance = random.Random(seed)
    world = build(home / "world")
    cases = [file_cases(world, chance), file_cases(world, chance), flag_cases(world, chance)]
    found = []
    for number in range(count):
        name, check = next(cases[number % len(cases)])
        for each in check():
            found.append(f"case {number}, {name}:\n{each}")
            print(found[-1], flush=True)
    return found


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="yurii-fuzz-") as home:
        found = fuzz(Path(home), asked.count, asked.seed)
    print(f"{asked.count} cases, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(run())
