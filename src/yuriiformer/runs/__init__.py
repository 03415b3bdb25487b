"""The run folder: configuration, metrics, checkpoints; what stands where, and safe writing."""
