return preset {
  key = block_float { rule = "mxfp6" },
  value = affine { bits = 4 },
}
