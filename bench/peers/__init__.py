"""One file per peer; each is a `bench.side.Side` written as that peer's own manual advises."""
