"""A stand-in for every agent tool: it does what a small script says and speaks the tool's dialect.

With it people rehearse a fleet at no cost, and tests need no model. It is deterministic: the same
script and the same prompt give the same bytes, ids and timestamps included.
"""
