"""The embedded corpus: generated stories whose entropy is known exactly."""
