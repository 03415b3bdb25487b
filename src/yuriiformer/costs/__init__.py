"""What a model costs: parameters, operations, bytes."""
