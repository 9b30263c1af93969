return preset {
  key = codebook { 4 },
  value = affine { bits = 4 },
}
