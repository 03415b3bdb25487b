"""A model looked into: what its streams and oracles do through depth."""
