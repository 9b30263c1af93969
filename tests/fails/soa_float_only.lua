return preset {
  key = float { format = "fp16" },
  value = float { format = "fp16" },
  layouts = { "soa" },
}
