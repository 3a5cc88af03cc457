"""Who may talk to whom, and how that is proven: certificates, and files of secrets."""
