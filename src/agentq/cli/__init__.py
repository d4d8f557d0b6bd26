"""The command line: it parses words, calls the client and shows the answer. No rules of its own."""
