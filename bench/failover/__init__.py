"""How long producers wait when the master goes, and whether anything acknowledged is lost."""
