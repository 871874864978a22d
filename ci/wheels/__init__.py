"""Wheels of one commit for every Python, libc and machine that headers can be had for, built with one compiler."""
