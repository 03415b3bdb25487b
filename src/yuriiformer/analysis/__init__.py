"""Looking inside: energies, traces through depth, the rules on plain optimisation, the planner."""
