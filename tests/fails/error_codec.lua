error(codebook { bits = 4 })
