"""Transactions as their coordinator sees them (KIP-98, KIP-360, KIP-890): automata, journal records, the coordinator."""
