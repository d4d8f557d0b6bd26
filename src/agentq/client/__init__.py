"""The SDK: one API over the ledger, for programs and for the command line."""
