"""Programs that show the suite on real input."""
