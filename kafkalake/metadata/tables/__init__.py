"""The Delta tables: `schemas` (rows), `delta_table` (one table and its commits), and a module for each table with its own rules."""
