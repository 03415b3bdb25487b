"""The heart: rules as equations, and the one interpreter that runs them.

This room imports nothing above it. Only `interpreter` needs torch; reading, checking and listing
rules does not.
"""
