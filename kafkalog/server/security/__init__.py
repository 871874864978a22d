"""Who may do what, how much, and who somebody is: ACLs, quotas, passwords."""
