"""Monitoring: metrics, health, and the status page."""
