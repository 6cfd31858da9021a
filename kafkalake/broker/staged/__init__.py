"""Appending what a job has staged: all of it in one transaction, once, however often it is asked for."""
