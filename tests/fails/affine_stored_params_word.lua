return preset {
  key = codebook { bits = 4 },
  value = affine { bits = 4, stored_params = "true" },
}
