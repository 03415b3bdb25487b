"""Training: the paper's recipe and any other size, exact to resume, on one process or many."""
