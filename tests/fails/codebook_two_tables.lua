return preset {
  key = codebook({ bits = 4 }, { bits = 3 }),
  value = affine { bits = 4 },
}
