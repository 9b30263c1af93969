return preset {
  key = codebook { bits = 4, rotation = "none\0" },
  value = affine { bits = 4 },
}
