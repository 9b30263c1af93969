return preset {
  key = codebook { bits = 4, norm = "fp32" },
  value = affine { bits = 4 },
}
