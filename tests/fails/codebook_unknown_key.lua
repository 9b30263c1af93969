return preset {
  key = codebook { bits = 4, bitz = 4, aaa = 1 },
  value = affine { bits = 4 },
}
