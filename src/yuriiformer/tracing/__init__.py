"""What a model's streams and oracles do through depth."""
