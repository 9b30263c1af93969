return preset {
  key = block_float { rule = "ultraquant", scale_constant = 0 / 0 },
  value = affine { bits = 4 },
}
