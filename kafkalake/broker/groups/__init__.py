"""Consumer groups: who is a member, who reads what, and what has been committed."""
