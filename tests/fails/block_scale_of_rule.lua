return preset {
  key = block_float { rule = "mxfp4", scale = "e4m3" },
  value = affine { bits = 4 },
}
