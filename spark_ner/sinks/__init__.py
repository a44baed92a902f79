"""Where results go: tables that are written exactly once."""
