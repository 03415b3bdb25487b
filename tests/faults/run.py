"""Put a fault into a copy of the package and see whether a fast test notices.

    python -m tests.faults.run            # each fault with the test that is named for it
    python -m tests.faults.run --find     # with all fast tests of the folders named; say which

Every fault runs in a fork of this process, which has imported what is slow to import (torch and
scipy, never the package), so that a fault costs as long as its test.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # a fork of a process with threads may hang

import argparse
import importlib
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "yuriiformer"
LIST = Path(__file__).with_name("faults.txt")
SLOW_TO_IMPORT = ("torch", "numpy", "scipy.stats", "safetensors.torch")
SAID = "said"  # what the tests printed
SECONDS = 600  # for one fault


@dataclass(frozen=True)
class Fault:
    title: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def faults() -> list[Fault]:
    """Those of the list."""
    found = []
    for text in LIST.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, file, old, new, tests = text.strip().split("\n")
        assert old.startswith("- "), title
        assert new.startswith("+ "), title
        named = tuple(re.split(r" (?=tests/)", tests))
        found.append(Fault(title, file, old[2:].strip(), new[2:].strip(), named))
    return found


def faulty(fault: Fault, folder: Path) -> None:
    """The package with the fault, in ``folder``."""
    shutil.copytree(PACKAGE, folder / "yuriiformer", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "yuriiformer" / fault.file
    text = path.read_text(encoding="utf-8")
    assert text.count(fault.old) == 1, f"{fault.file} has not this once: {fault.old}"
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")


@dataclass
class Try:
    """A fault on trial: tests that run in a fork of this process, with the faulty package."""

    fault: Fault
    tests: tuple[str, ...]
    place: tempfile.TemporaryDirectory[str]
    child: int
    began: float

    @classmethod
    def begin(cls, fault: Fault, tests: tuple[str, ...]) -> Try:
        place = tempfile.TemporaryDirectory()
        faulty(fault, Path(place.name))
        child = os.fork()
        if child == 0:
            _child(Path(place.name), tests)
        return cls(fault, tests, place, child, time.monotonic())

    def ended(self) -> bool:
        """Whether it has; one that hangs is stopped."""
        late = time.monotonic() - self.began > SECONDS
        if late:
            os.kill(self.child, 9)
        done, status = os.waitpid(self.child, 0 if late else os.WNOHANG)
        if not done:
            return False
        self.code = os.waitstatus_to_exitcode(status)
        self.said = (Path(self.place.name) / SAID).read_text()
        self.place.cleanup()
        return True

    @property
    def caught(self) -> str | None:
        """The test that failed; None if all passed."""
        if self.code == 0:
            return None
        failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", self.said, re.MULTILINE)
        if self.code != 1 or not failed:
            raise RuntimeError(f"{self.fault.title}: pytest ended with {self.code}\n{self.said}")
        return str(failed[0])


def _child(folder: Path, tests: tuple[str, ...]) -> None:
    """In the fork. Does not return."""
    code = 70
    try:
        out = os.open(folder / SAID, os.O_CREAT | os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{ROOT}"
        sys.path[:0] = [str(folder), str(ROOT)]
        import pytest

        options = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line")
        code = int(pytest.main([*options, f"--basetemp={folder / 'tmp'}", *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run(chosen: Sequence[Fault], jobs: int, *, whole: bool = False) -> Iterator[Try]:
    """Each fault's trial, as it ends; ``whole``: with all fast tests of the files named."""
    preload()
    waiting, running = list(chosen), list[Try]()
    while waiting or running:
        while waiting and len(running) < jobs:
            fault = waiting.pop(0)
            files = tuple(dict.fromkeys(test.partition("::")[0] for test in fault.tests))
            running.append(Try.begin(fault, files if whole else fault.tests))
        ended = [each for each in running if each.ended()]
        running = [each for each in running if each not in ended]
        yield from ended
        time.sleep(0 if ended else 0.05)


def preload() -> None:
    """Import what is slow, once for all forks."""
    for name in SLOW_TO_IMPORT:
        importlib.import_module(name)
    assert "yuriiformer" not in sys.modules, "a fork would keep the package without the fault"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--find", action="store_true", help="write the test that caught it")
    parser.add_argument("--only", default="", help="faults with this in their title")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th fault, from the K-th on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    chosen = [each for each in faults() if options.only in each.title][first::step]
    missed = 0
    for each in run(chosen, options.jobs, whole=options.find):
        caught = each.caught
        missed += caught is None
        print(f"{'caught' if caught else 'MISSED'}  {each.fault.title}  {caught or ''}", flush=True)
        if caught and options.find:
            _note(each.fault, caught)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    [sound] = run([_nothing(chosen)], 1)
    print(f"without a fault they {'pass' if sound.code == 0 else f'FAIL: {sound.said}'}")
    return 1 if missed or sound.code else 0


def _nothing(chosen: Sequence[Fault]) -> Fault:
    """No fault, with all their tests: what fails then has caught nothing."""
    tests = tuple(dict.fromkeys(test for fault in chosen for test in fault.tests))
    same = "from __future__ import annotations"
    return Fault("no fault", "__init__.py", same, same, tests)


def _note(fault: Fault, test: str) -> None:
    """Write the test down in the list."""
    text = LIST.read_text(encoding="utf-8")
    entry = re.compile(rf"(## {re.escape(fault.title)}\n(?:.*\n){{3}}).*\n")
    LIST.write_text(entry.sub(lambda found: f"{found[1]}{test}\n", text), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
