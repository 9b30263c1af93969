return preset "turboquant_5bit_nc" { value = { bits = 3 } }
