"""The model: oracles, blocks, embeddings, loss, and its files."""
