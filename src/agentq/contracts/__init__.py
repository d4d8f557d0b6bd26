"""The Protocols that plumbing keeps; each has one executable suite that every adapter passes."""
