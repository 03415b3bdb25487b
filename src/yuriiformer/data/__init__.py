"""Text and tokens to train on."""
