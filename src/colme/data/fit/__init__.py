"""From samples to estimates: noise, priors, estimators, the choice between them, groups, diagnosis."""
