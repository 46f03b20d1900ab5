"""Tests of the indexes: one contract suite for all, and what each paper promises besides."""
