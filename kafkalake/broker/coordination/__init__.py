"""Common parts of the group and transaction coordinators: decisions, their execution, the journal."""
