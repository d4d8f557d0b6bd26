"""Pure: envelopes, messages and secret detection; what travels, checked and read."""
