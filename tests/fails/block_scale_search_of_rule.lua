return preset {
  key = block_float { rule = "nvfp4", scale_search = true },
  value = affine { bits = 4 },
}
