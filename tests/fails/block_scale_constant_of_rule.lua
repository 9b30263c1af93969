return preset {
  key = block_float { rule = "mxfp4", scale_constant = 0.2 },
  value = affine { bits = 4 },
}
