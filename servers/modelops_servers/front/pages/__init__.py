"""Templates and scripts of the gateway's own pages."""
