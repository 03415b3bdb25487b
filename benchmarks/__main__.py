"""Measures side by side, and writes results.json and the table of the README beside it.

python -m benchmarks                  # every subject, each in a process of its own
python -m benchmarks generation       # those whose name begins so
python -m benchmarks --quick          # small sizes, few rounds, nothing written
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measuring import SUBJECTS, fresh
from benchmarks.subjects import rounds_of
from benchmarks.table import HERE, add_result, measured


def chosen(words: list[str]) -> list[str]:
    """The subjects whose names begin with one of these words; all without any."""
    for word in words:
        if not any(name.startswith(word) for name in SUBJECTS):
            raise SystemExit(f"there is no subject {word!r}: {', '.join(SUBJECTS)}")
    return [name for name in SUBJECTS if not words or name.startswith(tuple(words))]


def run(name: str, *, quick: bool, out: Path | None) -> bool:
    """Measure, print and keep one subject; whether it ended well."""
    began = time.perf_counter()
    print(f"{name} …", flush=True)
    try:
        found = rounds_of(name, quick) if quick else fresh(rounds_of, name, quick)
    except (subprocess.CalledProcessError, AssertionError) as error:
        print(f"  FAILED: {error}", flush=True)
        return False
    seconds = time.perf_counter() - began
    if isinstance(found, str):
        print(f"  not measured: {found}", flush=True)
        return True
    for row in SUBJECTS[name].rows:
        aim = "" if quick else row.aim  # aims are for the full sizes
        what = row.what.partition(":")[0] if quick else row.what  # and so are the sizes it names
        shown = measured(replace(row, aim=aim), found)
        print(f"  {what}, {row.against}: {shown}" + (f"   aim {aim}" if aim else ""), flush=True)
    print(f"  took {seconds:.0f} s", flush=True)
    if out is not None:
        add_result(out, name, found, seconds)
    return True


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("subjects", nargs="*", help=", ".join(SUBJECTS))
    parser.add_argument("--quick", action="store_true", help="does it run: no figure to rely on")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="another folder for results.json (and README.md)"
    )
    options = parser.parse_args(words)
    out = None if options.quick else options.out
    began = time.perf_counter()
    names = chosen(options.subjects)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # before anything is measured
    if options.quick:
        print("small sizes, not those that the rows name: does everything run?", flush=True)
    well = [run(name, quick=options.quick, out=out) for name in names]
    failed = [name for name, good in zip(names, well, strict=True) if not good]
    print(f"{len(names)} subjects in {(time.perf_counter() - began) / 60:.1f} minutes")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
