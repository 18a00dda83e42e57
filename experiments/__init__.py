"""How fast is it, and against whom? Rivals in `baselines`, and `report`, which writes docs/benchmarks."""
