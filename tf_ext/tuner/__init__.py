"""Hyper-parameter tuning that trains every shared prefix once: Keras Tuner with stage trees (Hippo, PVLDB 15(5), 2022)."""
