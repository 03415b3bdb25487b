"""Seeded faults outside the rules: each is caught by the fast test that is named for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.run import PACKAGE, ROOT, faults

PARTS = 4  # so that several processes share the work


def test_the_list_is_of_this_code():
    known = faults()
    assert len(known) >= 40
    assert len({fault.title for fault in known}) == len(known)
    for fault in known:
        assert (PACKAGE / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault.title
        assert not fault.file.startswith("methods/")
        for test in fault.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), fault.title


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_fault_is_caught(part):
    """In a process of its own: this one has imported the package without the faults."""
    command = [sys.executable, "-m", "tests.faults.run", "--part", f"{part}/{PARTS}", "--jobs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
