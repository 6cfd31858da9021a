"""Appends of files staged by a job: all of them in one transaction, exactly once even if the request is repeated."""
