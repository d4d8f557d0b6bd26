"""The service interface over HTTP or a Unix socket: the client's side."""
