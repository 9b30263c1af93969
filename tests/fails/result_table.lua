return { key = { bits = 4 } }
