return preset {
  key = codebook { bits = 2, centroids = { [1] = -0.1, [2] = -0.05, [3] = 0.05, [5] = 0.1 } },
  value = affine { bits = 4 },
}
