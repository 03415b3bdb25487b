"""The rules on plain optimisation, where theory exists."""
