"""Your own table: read it, choose an estimator by cross-validation, estimate, diagnose."""
