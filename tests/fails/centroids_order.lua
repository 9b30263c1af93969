return preset {
  key = codebook { bits = 2, centroids = { -0.1, 0.05, -0.05, 0.1 } },
  value = affine { bits = 4 },
}
