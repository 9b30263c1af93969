return preset {
  key = block_float { rule = "ultraquant", scale_constant = 0.501 },
  value = affine { bits = 4 },
}
