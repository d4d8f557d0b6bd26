"""The command line: parse words, call the client, show the answer."""
