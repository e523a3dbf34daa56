"""Sentiment of short sentences by the trees of their phrases."""
