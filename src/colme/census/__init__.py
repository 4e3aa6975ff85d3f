"""The census, the project's own method: a histogram of all local means by consensus, a mixture, a posterior mean.

Read in this order:

`method`            the equations, the parameters, the schedule, and what one agent does
`array`             the same for all agents at once, as the simulator runs it; detection of changes (restart=True)
`histogram`         linear binning, the codes of bins, one round of consensus                      (2), (3)
`mixture`           the maximum-likelihood mixture of a noisy histogram and how many components      (4)
`posterior`         fitted mixtures as priors; posterior mean, distribution function and quantiles     (5)
`uncertainty`       what the standard errors of a fitted mixture add to its components
`sample_variance`   where sigma is not known: sample variances, moderated by their average
`variance_function` sample variances that depend on the mean
"""
