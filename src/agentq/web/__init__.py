"""The board: pages in a browser over the HTTP server's API, with no rules of their own."""
