"""The Delta tables: `schemas` the rows, `delta_table` one table and its commits, and a module for
each table with rules of its own.
"""
