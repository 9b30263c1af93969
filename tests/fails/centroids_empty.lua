return preset {
  key = codebook { bits = 2, centroids = {} },
  value = affine { bits = 4 },
}
