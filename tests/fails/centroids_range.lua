return preset {
  key = codebook { bits = 2, centroids = { -1.5, -0.05, 0.05, 0.1 } },
  value = affine { bits = 4 },
}
