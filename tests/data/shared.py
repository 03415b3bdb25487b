"""Real text, where it is at hand: beside the checkout, never in it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data"
STORIES = SHARED / "tinystories" / "tinystories_sample_5M.txt"
WEB = SHARED / "openwebtext" / "openwebtext-1000.jsonl"

needs_stories = pytest.mark.skipif(not STORIES.exists(), reason="no TinyStories sample here")
needs_web = pytest.mark.skipif(not WEB.exists(), reason="no OpenWebText sample here")
