"""Artifacts in an S3 bucket."""
