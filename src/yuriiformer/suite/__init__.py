"""Rules compared: arms, their runs, statistics, and what comes out."""
