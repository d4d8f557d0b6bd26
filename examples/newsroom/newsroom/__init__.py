"""A newsroom: articles are researched, written and checked by workers of three roles."""
