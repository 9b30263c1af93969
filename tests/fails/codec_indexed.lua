return codebook { bits = 4 }.bits
