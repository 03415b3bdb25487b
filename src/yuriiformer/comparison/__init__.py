"""Arms, studies and suites of them: run, compared, archived."""
