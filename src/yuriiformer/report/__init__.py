"""The results table, and what is made of it: files, figures, a page."""
