return preset {
  key = block_float { rule = "mxfp4", element = "e3m2" },
  value = affine { bits = 4 },
}
