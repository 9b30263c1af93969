return preset {
  key = codebook { bits = 4, rotation = "random" },
  value = affine { bits = 4 },
}
