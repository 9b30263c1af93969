return preset "turboquant_4bit_nc" {
  value = { bits = 5 },
  layouts = { "native" },
}
