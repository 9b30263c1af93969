local c = codebook { bits = 4 }
c.bits = 2
