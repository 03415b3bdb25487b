"""How many examples a test draws: some for 'make test', all for 'make test-slow'."""

from __future__ import annotations

from hypothesis import settings


def examples(many: int) -> settings:
    """So many where time is no matter; else a fifth."""
    thorough = settings.get_current_profile_name() == "thorough"
    return settings(max_examples=many if thorough else max(20, many // 5))
