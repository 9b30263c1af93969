return preset {
  key = block_float { rule = "ultraquant", scale_constant = "0.2" },
  value = affine { bits = 4 },
}
