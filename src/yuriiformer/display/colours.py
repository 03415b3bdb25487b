"""Colours that figures and pages share."""

INK = "#222222"
