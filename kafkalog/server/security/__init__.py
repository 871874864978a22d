"""Security of a server: authentication, ACLs and quotas."""
