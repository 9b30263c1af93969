return codebook { bits = 4 }
