"""What the group coordinator and the transaction coordinator have in common: decisions, the journal, its byte fields."""
