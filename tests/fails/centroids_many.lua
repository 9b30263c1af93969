return preset {
  key = codebook { bits = 4, centroids = { 0, .01, .02, .03, .04, .05, .06, .07, .08, .09, .1, .11, .12, .13, .14, .15, .16 } },
  value = affine { bits = 4 },
}
