"""Your own table: read it, estimate every agent's mean, choose the method, diagnose."""
