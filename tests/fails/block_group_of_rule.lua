return preset {
  key = block_float { rule = "nvfp4", group = 32 },
  value = affine { bits = 4 },
}
