return preset {
  key = codebook { rotation = "none" },
  value = affine { bits = 4 },
}
