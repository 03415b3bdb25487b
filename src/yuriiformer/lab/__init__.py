"""The rules on plain optimisation problems, where theory exists."""
