"""What a rule looks like: equations, layout, diagram."""
