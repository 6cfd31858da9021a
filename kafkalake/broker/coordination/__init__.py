"""What the group coordinator and the transaction coordinator have in common: decisions, who carries them out, the journal."""
