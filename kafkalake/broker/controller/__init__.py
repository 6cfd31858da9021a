"""The controller, which one broker is, and the membership of each broker in the cluster."""
