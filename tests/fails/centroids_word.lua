return preset {
  key = codebook { bits = 2, centroids = "uniform" },
  value = affine { bits = 4 },
}
