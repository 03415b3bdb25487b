"""Arms, studies and suites: run, compared, archived."""
